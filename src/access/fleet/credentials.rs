//! The user's credentials for the NATS server: what a file of them has, and whom they name. Pure.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;

/// Credentials, by the form of their file.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    /// A user JWT and its seed, as `nsc` writes them.
    Jwt { whole: String, user: Option<String> },
    /// The seed of an nkey.
    Seed(String),
    /// `USER:PASSWORD`.
    Password { user: String, password: String },
}

/// Shows no secret.
impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Credentials::Jwt { .. } => "Jwt",
            Credentials::Seed(_) => "Seed",
            Credentials::Password { .. } => "Password",
        })
    }
}

impl Credentials {
    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// The text is not in one of the forms. The message does not quote it.
    pub(super) fn read(text: &str) -> Result<Credentials, &'static str> {
        if text.contains("-----BEGIN NATS USER JWT-----") {
            let user = jwt(text).and_then(user_of);
            return Ok(Credentials::Jwt { whole: text.to_owned(), user });
        }
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let wrong =
            "it has neither a user JWT with its seed, nor the seed of a user's nkey, nor one line USER:PASSWORD";
        let (Some(line), None) = (lines.next(), lines.next()) else { return Err(wrong) };
        let is_seed =
            line.starts_with("SU") && line.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
        match line.split_once(':') {
            None if is_seed => Ok(Credentials::Seed(line.to_owned())),
            Some((user, password)) if !user.is_empty() && !password.is_empty() => {
                Ok(Credentials::Password { user: user.to_owned(), password: password.to_owned() })
            }
            Some(_) | None => Err(wrong),
        }
    }

    /// The user in the credentials; a seed has no name.
    pub(super) fn user(&self) -> Option<&str> {
        match self {
            Credentials::Jwt { user, .. } => user.as_deref(),
            Credentials::Seed(_) => None,
            Credentials::Password { user, .. } => Some(user),
        }
    }
}

/// The line between the marks of the JWT.
fn jwt(text: &str) -> Option<&str> {
    text.lines().skip_while(|line| !line.contains("BEGIN NATS USER JWT")).nth(1).map(str::trim)
}

/// The name in the claims of a JWT. The server checks the signature, so a wrong name gains nothing.
fn user_of(jwt: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Claims {
        name: String,
    }
    let claims = BASE64_URL_SAFE_NO_PAD.decode(jwt.split('.').nth(1)?).ok()?;
    serde_json::from_slice(&claims).ok().map(|claims: Claims| claims.name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_files_are_told_apart() {
        let claims = BASE64_URL_SAFE_NO_PAD.encode(r#"{"sub":"UAB","name":"ann"}"#);
        let creds = format!("-----BEGIN NATS USER JWT-----\ne30.{claims}.sig\n------END NATS USER JWT------\n");
        assert_eq!(Credentials::read(&creds).expect("valid").user(), Some("ann"));
        assert_eq!(Credentials::read("# mine\nSUAB27\n"), Ok(Credentials::Seed("SUAB27".to_owned())));
        let password = Credentials::Password { user: "ann".to_owned(), password: "a:b".to_owned() };
        assert_eq!(Credentials::read("ann:a:b\n"), Ok(password.clone()));
        for wrong in ["", "SAAB27", "ann", ":x", "ann:", "a:b\nc:d"] {
            assert!(Credentials::read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(format!("{password:?}"), "Password");
    }
}
