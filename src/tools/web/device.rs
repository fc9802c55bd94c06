//! The short description of a browser, from the user agent that it sends. Pure.
//!
//! A description consists of words of this file only, whatever the user agent says.

/// Browsers, by a part of their user agent. Most of them name others too, so the first match counts.
const BROWSERS: [(&str, &str); 9] = [
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Vivaldi/", "Vivaldi"),
    ("FxiOS/", "Firefox"),
    ("Firefox/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
];

/// Systems, in the same way.
const SYSTEMS: [(&str, &str); 8] = [
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("Windows", "Windows"),
    ("CrOS", "ChromeOS"),
    ("Macintosh", "Mac"),
    ("Linux", "Linux"),
    ("BSD", "BSD"),
];

/// `Firefox on Android`.
pub(super) fn device(user_agent: &str) -> String {
    let user_agent = user_agent.replace("HeadlessChrome/", "Chrome/");
    let known =
        |all: &[(&str, &'static str)]| all.iter().find(|(part, _)| user_agent.contains(part)).map(|(_, name)| *name);
    let browser = known(&BROWSERS).unwrap_or("Unknown browser");
    known(&SYSTEMS).map_or_else(|| browser.to_owned(), |system| format!("{browser} on {system}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_and_systems_are_recognized() {
        let check = |user_agent: &str, expect: &str| assert_eq!(device(user_agent), expect, "{user_agent}");
        let windows = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)";
        check(&format!("{windows} Chrome/131.0.0.0 Safari/537.36"), "Chrome on Windows");
        check(&format!("{windows} Chrome/131.0.0.0 Safari/537.36 Edg/131.0.0.0"), "Edge on Windows");
        check(&format!("{windows} Chrome/131.0.0.0 Safari/537.36 OPR/116.0.0.0"), "Opera on Windows");
        check("Mozilla/5.0 (Android 14; Mobile; rv:133.0) Gecko/133.0 Firefox/133.0", "Firefox on Android");
        let android = "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko)";
        check(&format!("{android} Chrome/131.0.0.0 Mobile Safari/537.36"), "Chrome on Android");
        check(
            &format!("{android} SamsungBrowser/27.0 Chrome/125.0.0.0 Mobile Safari/537.36"),
            "Samsung Internet on Android",
        );
        let iphone = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko)";
        check(&format!("{iphone} Version/18.1 Mobile/15E148 Safari/604.1"), "Safari on iPhone");
        check(&format!("{iphone} CriOS/131.0.6778.73 Mobile/15E148 Safari/604.1"), "Chrome on iPhone");
        check("Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:133.0) Gecko/20100101 Firefox/133.0", "Firefox on Mac");
        check(
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/131.0",
            "Chrome on Linux",
        );
        check("curl/8.5.0", "Unknown browser");
        check("", "Unknown browser");
        check("\u{202e}<script>Linux", "Unknown browser on Linux");
    }
}
