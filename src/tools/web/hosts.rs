//! The addresses under which the page may be used, and the requests that another page could have caused.
//!
//! Pure. A browser tells the truth about `Host`, `Origin` and `Sec-Fetch-Site`, whatever the page that makes it send a request.
//! `Host` must be our literal address or a name that the user has given, so that a page cannot point its own name at us (DNS
//! rebinding). `Origin` must be that of our page at the same host: ports count, so a server on another port is a stranger.

use std::net::Ipv4Addr;
use std::str::FromStr;

use axum::http::{HeaderMap, HeaderName, Method, Uri, header};

/// The port that browsers leave out of an address with `http:`.
const HTTP_PORT: u16 = 80;

const HTTPS_PORT: u16 = 443;

/// The name of this machine that browsers reach without a proxy.
const LOCALHOST: &str = "localhost";

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// A name from `--host`: `NAME`, at any port, or `NAME:PORT`. Browsers must use it with TLS, unless it leads to their own
/// machine or begins with `http://`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostName {
    name: String,
    port: Option<u16>,
    is_plain: bool,
}

impl HostName {
    /// Whether cookies and answers cross a network without TLS.
    pub(crate) fn is_exposed(&self) -> bool {
        self.is_plain && !is_local(&self.name)
    }

    fn allows_plain(&self) -> bool {
        self.is_plain || is_local(&self.name)
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<HostName, String> {
        let example = "give a name, such as `laptop.tailnet.ts.net`, or NAME:PORT";
        let (text, is_plain) = text.strip_prefix("http://").map_or((text, false), |text| (text, true));
        if text.contains('/') {
            return Err(format!("a host must not have a path, and no scheme but `http://`; {example}"));
        }
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(port.parse().map_err(|_| format!("the port is not valid; {example}"))?)),
            None => (text, None),
        };
        let is_label = |label: &str| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            !label.is_empty() && label.bytes().all(is_allowed)
        };
        let name = name.to_ascii_lowercase();
        if name.split('.').all(is_label) {
            Ok(HostName { name, port, is_plain })
        } else {
            Err(format!("not a valid host name; {example}"))
        }
    }
}

/// The kind of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// The page itself, to which a link may lead.
    Page,
    /// A file of the page.
    File,
    Api,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Foreign {
    Host,
    Origin,
    Site,
}

/// All addresses of the page.
#[derive(Debug, Clone)]
pub(super) struct Hosts {
    port: u16,
    names: Vec<HostName>,
}

impl Hosts {
    pub(super) fn new(port: u16, names: Vec<HostName>) -> Hosts {
        Hosts { port, names }
    }

    /// `http://127.0.0.1:PORT`.
    pub(super) fn own_origin(&self) -> String {
        format!("http://{}", self.own_host())
    }

    fn own_host(&self) -> String {
        if self.port == HTTP_PORT { "127.0.0.1".to_owned() } else { format!("127.0.0.1:{}", self.port) }
    }

    /// The origins for links: our own, and that of each name.
    pub(super) fn origins(&self) -> Vec<String> {
        let of_name = |host: &HostName| {
            let port = host.port.or_else(|| is_local(&host.name).then_some(self.port));
            let scheme = if host.allows_plain() { "http" } else { "https" };
            format!("{scheme}://{}{}", host.name, port.map(|port| format!(":{port}")).unwrap_or_default())
        };
        std::iter::once(self.own_origin()).chain(self.names.iter().map(of_name)).collect()
    }

    /// The origins of our page for this value of `Host`; empty if it is not one of our addresses.
    fn origins_at(&self, host: &str, is_https: bool) -> Vec<String> {
        let host = host.to_ascii_lowercase();
        if host == self.own_host() {
            return vec![self.own_origin()];
        }
        let (name, port) = match host.split_once(':') {
            Some((name, port)) => match port.parse() {
                Ok(port) => (name, Some(port)),
                Err(_) => return Vec::new(),
            },
            None => (&*host, None),
        };
        let is_it = |known: &&HostName| {
            let default_port = if known.allows_plain() { HTTP_PORT } else { HTTPS_PORT };
            known.name == name && known.port.is_none_or(|wanted| port.unwrap_or(default_port) == wanted)
        };
        let known: Vec<&HostName> = self.names.iter().filter(is_it).collect();
        let plain = known.iter().any(|known| known.allows_plain()) && !is_https;
        let secure = known.iter().any(|known| !known.is_exposed());
        [("http", plain), ("https", secure)]
            .into_iter()
            .filter(|(_, is_allowed)| *is_allowed)
            .map(|(scheme, _)| format!("{scheme}://{host}"))
            .collect()
    }

    /// Checks who has made a browser send a request; returns the origin that it names.
    pub(super) fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        target: Target,
    ) -> Result<Option<String>, Foreign> {
        let host = only(headers, &header::HOST).ok_or(Foreign::Host)?;
        // An absolute URI takes precedence over the header.
        if uri.authority().is_some_and(|authority| authority.as_str() != host) {
            return Err(Foreign::Host);
        }
        let is_https = headers.get(FORWARDED_PROTO).is_some_and(|proto| proto.as_bytes() == b"https");
        let origins = self.origins_at(host, is_https);
        if origins.is_empty() {
            return Err(Foreign::Host);
        }
        let origin = match headers.contains_key(header::ORIGIN) {
            true => Some(only(headers, &header::ORIGIN).ok_or(Foreign::Origin)?),
            false if *method == Method::GET || *method == Method::HEAD => None,
            false => return Err(Foreign::Origin),
        };
        if origin.is_some_and(|origin| !origins.iter().any(|ours| ours == origin)) {
            return Err(Foreign::Origin);
        }
        if !is_from_us(headers, target) {
            return Err(Foreign::Site);
        }
        Ok(origin.map(str::to_owned))
    }
}

/// Whether `Sec-Fetch-Site` says that our page or the user has caused a request. Old browsers and tools do not send it.
fn is_from_us(headers: &HeaderMap, target: Target) -> bool {
    if !headers.contains_key(SEC_FETCH_SITE) {
        return true;
    }
    let is = |name: &HeaderName, value: &str| only(headers, name) == Some(value);
    match target {
        Target::Api => is(&SEC_FETCH_SITE, "same-origin"),
        Target::File => is(&SEC_FETCH_SITE, "same-origin") || is(&SEC_FETCH_SITE, "none"),
        // A link in a mail leads here from another site; the page alone shows and does nothing.
        Target::Page => {
            let is_shown = is(&SEC_FETCH_MODE, "navigate") && is(&SEC_FETCH_DEST, "document");
            is(&SEC_FETCH_SITE, "same-origin") || is(&SEC_FETCH_SITE, "none") || is_shown
        }
    }
}

/// The value of a header that occurs once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Whether a link leads here from another device: under a name that a proxy serves.
pub(super) fn leads_elsewhere(link: &str) -> bool {
    let authority = link.split_once("://").map_or(link, |(_, rest)| rest).split('/').next().unwrap_or_default();
    let name = authority.split(':').next().unwrap_or_default();
    name != Ipv4Addr::LOCALHOST.to_string() && !is_local(name)
}

/// Whether a name leads to the machine of the browser itself.
fn is_local(name: &str) -> bool {
    name == LOCALHOST || name.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn hosts() -> Hosts {
        let names = ["laptop.tail.ts.net", "box:8443", "localhost"].map(|name| name.parse().expect("a name"));
        Hosts::new(4_000, names.to_vec())
    }

    /// Checks a request with these headers.
    fn check(method: Method, target: Target, headers: &[(&str, &str)]) -> Result<Option<String>, Foreign> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
            map.append(HeaderName::from_bytes(name.as_bytes()).expect("a name"), value);
        }
        hosts().check(&method, &Uri::from_static("/"), &map, target)
    }

    #[test]
    fn only_own_addresses_are_hosts() {
        let is_ours = |host: &str| check(Method::GET, Target::Api, &[("host", host)]).is_ok();
        let ours =
            ["127.0.0.1:4000", "laptop.tail.ts.net", "LAPTOP.tail.ts.net", "laptop.tail.ts.net:8443", "box:8443"];
        for host in ours.into_iter().chain(["localhost:4000"]) {
            assert!(is_ours(host), "{host}");
        }
        let others = [
            "",
            "127.0.0.1",
            "127.0.0.1:4001",
            "127.0.0.1:4000.",
            "127.0.0.2:4000",
            "0.0.0.0:4000",
            "[::1]:4000",
            "evil.example",
            "evil.example:4000",
            "127.0.0.1.nip.io:4000",
            "127.0.0.1:4000.evil.example",
            "xlaptop.tail.ts.net",
            "laptop.tail.ts.net.evil.example",
            "laptop.tail.ts.net:x",
            "box",
            "box:443",
            "a@127.0.0.1:4000",
        ];
        for host in others {
            assert!(!is_ours(host), "{host}");
        }
        assert_eq!(check(Method::GET, Target::Page, &[]), Err(Foreign::Host));
        let twice = [("host", "127.0.0.1:4000"), ("host", "127.0.0.1:4000")];
        assert_eq!(check(Method::GET, Target::Page, &twice), Err(Foreign::Host));
    }

    #[test]
    fn absolute_uris_must_agree() {
        let headers = HeaderMap::from_iter([(header::HOST, HeaderValue::from_static("127.0.0.1:4000"))]);
        let at = |uri| hosts().check(&Method::GET, &Uri::from_static(uri), &headers, Target::Page);
        assert_eq!(at("http://127.0.0.1:4000/"), Ok(None));
        assert_eq!(at("http://evil.example/"), Err(Foreign::Host));
    }

    #[test]
    fn posts_need_the_origin_of_their_host() {
        let from =
            |host: &str, origin: &str| check(Method::POST, Target::Api, &[("host", host), ("origin", origin)]).is_ok();
        assert!(from("127.0.0.1:4000", "http://127.0.0.1:4000"));
        assert!(from("laptop.tail.ts.net", "https://laptop.tail.ts.net"));
        assert!(from("localhost:4000", "http://localhost:4000"));
        for origin in [
            "null",
            "",
            "http://127.0.0.1",
            "http://127.0.0.1:4001",
            "https://127.0.0.1:4000",
            "http://127.0.0.1:4000/",
            "http://localhost:4000",
            "http://evil.example",
            "https://laptop.tail.ts.net",
        ] {
            assert!(!from("127.0.0.1:4000", origin), "{origin}");
        }
        assert!(!from("laptop.tail.ts.net", "https://laptop.tail.ts.net:9999"));
        assert!(!from("laptop.tail.ts.net", "http://127.0.0.1:4000"));
        assert_eq!(check(Method::POST, Target::Api, &[("host", "127.0.0.1:4000")]), Err(Foreign::Origin));
        assert_eq!(check(Method::DELETE, Target::Api, &[("host", "127.0.0.1:4000")]), Err(Foreign::Origin));
    }

    #[test]
    fn foreign_origins_may_not_even_read() {
        let get = |origin: &str| check(Method::GET, Target::Api, &[("host", "127.0.0.1:4000"), ("origin", origin)]);
        assert_eq!(get("http://evil.example"), Err(Foreign::Origin));
        assert_eq!(get("http://127.0.0.1:4000"), Ok(Some("http://127.0.0.1:4000".to_owned())));
    }

    #[test]
    fn proxies_with_tls_have_no_plain_origin() {
        let post = |origin: &str| {
            let headers = [("host", "laptop.tail.ts.net"), ("origin", origin), ("x-forwarded-proto", "https")];
            check(Method::POST, Target::Api, &headers).is_ok()
        };
        assert!(post("https://laptop.tail.ts.net") && !post("http://laptop.tail.ts.net"));
    }

    #[test]
    fn names_need_tls_unless_http_is_written() {
        let post = |name: &str, host: &str, scheme: &str| {
            let origin = format!("{scheme}://{host}");
            let headers = [(header::HOST, host), (header::ORIGIN, &origin)];
            let headers = headers.map(|(name, value)| (name, HeaderValue::from_str(value).expect("a value")));
            let hosts = Hosts::new(4_000, vec![name.parse().expect("a name")]);
            hosts.check(&Method::POST, &Uri::from_static("/"), &HeaderMap::from_iter(headers), Target::Api).is_ok()
        };
        assert!(post("box", "box", "https") && !post("box", "box", "http") && !post("box", "box:80", "http"));
        assert!(post("http://box", "box", "http") && !post("http://box", "box", "https"));
        assert!(post("http://box:80", "box", "http") && post("http://box:81", "box:81", "http"));
        assert!(!post("http://box:81", "box", "http") && post("localhost", "localhost:4000", "http"));
        let is_exposed = |name: &str| name.parse::<HostName>().expect("a name").is_exposed();
        assert!(is_exposed("http://box") && !is_exposed("box") && !is_exposed("http://x.localhost"));
        assert_eq!(Hosts::new(4_000, vec!["http://box".parse().expect("a name")]).origins()[1], "http://box");
    }

    #[test]
    fn other_sites_reach_only_the_bare_page() {
        let from = |target: Target, site: &str, dest: &str| {
            let mode = if dest == "document" { "navigate" } else { "no-cors" };
            let headers = [("host", "127.0.0.1:4000"), ("sec-fetch-site", site), ("sec-fetch-mode", mode)];
            check(Method::GET, target, &[&headers[..], &[("sec-fetch-dest", dest)]].concat()).is_ok()
        };
        for site in ["cross-site", "same-site"] {
            assert!(from(Target::Page, site, "document") && !from(Target::Page, site, "iframe"));
            assert!(!from(Target::File, site, "script") && !from(Target::Api, site, "empty"));
            assert!(!from(Target::Api, site, "document"));
        }
        assert!(from(Target::Page, "none", "document") && from(Target::File, "same-origin", "script"));
        assert!(from(Target::Api, "same-origin", "empty") && !from(Target::Api, "none", "document"));
    }

    #[test]
    fn links_to_proxies_lead_elsewhere() {
        let elsewhere: Vec<bool> =
            hosts().origins().iter().map(|origin| leads_elsewhere(&format!("{origin}/#t"))).collect();
        assert_eq!(elsewhere, [false, true, true, false]);
    }

    #[test]
    fn names_are_plain() {
        let read = |text: &str| text.parse::<HostName>().map(|HostName { name, port, .. }| (name, port));
        assert_eq!(read("Laptop.tail.ts.net"), Ok(("laptop.tail.ts.net".to_owned(), None)));
        assert_eq!(read("box:8443"), Ok(("box".to_owned(), Some(8_443))));
        for text in ["", "*", "*.ts.net", "https://box", "box/x", "box:x", "a..b", "a b", "[::1]", "a@b"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn links_lead_to_each_address() {
        let expect =
            ["http://127.0.0.1:4000", "https://laptop.tail.ts.net", "https://box:8443", "http://localhost:4000"];
        assert_eq!(hosts().origins(), expect);
        assert_eq!(Hosts::new(80, Vec::new()).own_origin(), "http://127.0.0.1");
    }
}
