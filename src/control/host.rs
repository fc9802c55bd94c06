//! DNS rebinding protection: rejects requests made under a host name that a web page could have.
//!
//! The author of a page can point the page's own name at this machine after it has loaded. Its requests are then same-origin
//! and carry no `Origin` header. Such a name is a registered one, which contains a dot. Tools send any host, because a Unix
//! socket has none: `shim`, `localhost`, `x`.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, Uri, header};

/// Whether the host is absent or one that only a tool would send.
pub(super) fn is_a_tools(uri: &Uri, headers: &HeaderMap) -> bool {
    // An absolute URI takes precedence over the header.
    let asked = uri.authority().map(|authority| authority.as_str());
    asked.is_none_or(is_harmless)
        && headers.get_all(header::HOST).iter().all(|host| host.to_str().is_ok_and(|host| is_harmless(host.trim())))
}

/// Whether no web page from elsewhere can have this host name.
fn is_harmless(host: &str) -> bool {
    if let Some(bracketed) = host.strip_prefix('[') {
        let address = bracketed.split_once(']').and_then(|(address, port)| is_port(port).then_some(address));
        return address.and_then(|address| address.parse().ok()).is_some_and(|address: Ipv6Addr| address.is_loopback());
    }
    let name = match host.find(':') {
        Some(colon) if is_port(&host[colon..]) => &host[..colon],
        Some(_) => return false,
        None => host,
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.%".contains(&byte);
    if !name.bytes().all(plain) {
        return false;
    }
    // Names below `.localhost` never reach DNS (RFC 6761, section 6.3). Docker's tools send `api.moby.localhost`.
    let is_local = name.to_ascii_lowercase().ends_with(".localhost");
    !name.contains('.') || is_local || name.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
}

/// Whether `text` is empty, or a colon and a number.
fn is_port(text: &str) -> bool {
    text.is_empty() || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_names_are_refused() {
        let tools = [
            "",
            "x",
            "shim",
            "codex-shim",
            "localhost",
            "LocalHost:8080",
            "localhost:",
            "127.0.0.1",
            "127.1.2.3:1",
            "[::1]",
            "[::1]:80",
            "api.moby.localhost",
            "2f746d702f73",
            "%2Ftmp%2Fs",
        ];
        for host in tools {
            assert!(is_harmless(host), "{host}");
        }
        let pages = [
            "evil.example",
            "EVIL.example:80",
            "evil.",
            ".",
            "127.0.0.1.nip.io",
            "10.0.0.1",
            "0.0.0.0",
            "[::]",
            "[fe80::1]",
            "[::ffff:127.0.0.1]",
            "[::1].evil.example",
            "[::1",
            "localhost:80.evil.example",
            "evil.example:x",
            "a:b@c",
            "a b",
            "localhost.evil.example",
            "xlocalhost.",
            "localhost/evil.example",
            "machine.local",
        ];
        for host in pages {
            assert!(!is_harmless(host), "{host}");
        }
    }

    #[test]
    fn uri_and_host_header_both_count() {
        let check = |uri: &str, hosts: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, host.to_vec().try_into().expect("it may be said"));
            }
            is_a_tools(&uri.parse().expect("an address"), &headers)
        };
        assert!(check("/healthz", &[]) && check("/healthz", &[b"shim"]) && check("http://shim/healthz", &[b"shim"]));
        assert!(!check("/healthz", &[b"shim", b"evil.example"]) && !check("/healthz", &[b"\xff"]));
        assert!(!check("http://evil.example/healthz", &[b"shim"]) && !check("http://evil.example/healthz", &[]));
    }
}
