//! The user's prices of models: `[prices."MODEL"]`. There are no others: prices change, and differ from user to user.

use toml::{Table, Value};

use super::kind::quoted;
use super::sources::Sources;
use super::{Complaint, Setting, SettingRow, Source};

const MODELS_MAX: usize = 256;

/// Millionths of the currency.
const MICRO: f64 = 1_000_000.0;

/// Highest price of a million tokens, in the currency.
const PRICE_MAX: f64 = 1_000_000.0;

const MEMBERS: [&str; 3] = ["input", "cached_input", "output"];

/// The price of a model. All are of a million tokens, in millionths of the user's currency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Price {
    pub model: String,
    pub input: u64,
    pub cached_input: u64,
    pub output: u64,
}

impl Price {
    /// What tokens cost, in millionths of the currency. `input` includes `cached`.
    #[must_use]
    pub fn of(&self, input: u64, cached: u64, output: u64) -> u64 {
        let parts = [(input.saturating_sub(cached), self.input), (cached, self.cached_input), (output, self.output)];
        let sum: u128 = parts.iter().map(|(tokens, price)| u128::from(*tokens) * u128::from(*price)).sum();
        u64::try_from(sum / 1_000_000).unwrap_or(u64::MAX)
    }
}

pub(super) fn resolve(sources: &mut Sources<'_>) -> Setting<Vec<Price>> {
    let table = match sources.file.remove("prices") {
        Some(Value::Table(table)) => table,
        Some(other) => {
            sources.refuse("prices", &other, "use a table for each model: `[prices.\"MODEL\"]`; ");
            Table::new()
        }
        None => return Setting { value: Vec::new(), source: Source::Default },
    };
    let mut prices = Vec::new();
    for (model, value) in table {
        match price(&model, &value) {
            Ok(_) if prices.len() >= MODELS_MAX => {
                sources.complaints.push(Complaint(format!("config.toml: prices: the limit is {MODELS_MAX} models")));
                break;
            }
            Ok(price) => prices.push(price),
            Err(why) => {
                let of = quoted(&model);
                sources.complaints.push(Complaint(format!("config.toml: prices.{of}: {why}; the model has no price")));
            }
        }
    }
    Setting { value: prices, source: Source::File }
}

fn price(model: &str, value: &Value) -> Result<Price, String> {
    let table = value.as_table().ok_or("use a table, such as { input = 1.25, cached_input = 0.125, output = 10 }")?;
    if let Some(unknown) = table.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
        return Err(format!("unknown member `{unknown}`; the members are {}", MEMBERS.join(", ")));
    }
    let [input, cached_input, output] = MEMBERS.map(|name| micro(table, name));
    let (input, output) = (input?, output?);
    let missing = |name: &str| format!("it has no `{name}`, the price of a million tokens");
    let input = input.ok_or_else(|| missing("input"))?;
    Ok(Price {
        model: model.to_owned(),
        input,
        cached_input: cached_input?.unwrap_or(input),
        output: output.ok_or_else(|| missing("output"))?,
    })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within bounds")]
fn micro(table: &Table, name: &str) -> Result<Option<u64>, String> {
    let Some(value) = table.get(name) else { return Ok(None) };
    let price = value.as_float().or_else(|| value.as_integer().map(|price| price as f64));
    match price.filter(|price| (0.0..=PRICE_MAX).contains(price)) {
        Some(price) => Ok(Some((price * MICRO).round() as u64)),
        None => Err(format!("{name}: it must be a number from 0 to {PRICE_MAX}")),
    }
}

pub(super) fn row(setting: &Setting<Vec<Price>>) -> SettingRow {
    let models: Vec<&str> = setting.value.iter().map(|price| &*price.model).collect();
    SettingRow {
        name: "prices",
        value: (!models.is_empty()).then(|| models.join(", ")),
        toml: Some(format!("{{ {} }}", setting.value.iter().map(inline).collect::<Vec<_>>().join(", "))),
        source: setting.source.clone(),
    }
}

fn inline(Price { model, input, cached_input, output }: &Price) -> String {
    let [input, cached_input, output] = [input, cached_input, output].map(|micro| *micro as f64 / MICRO);
    format!("{} = {{ input = {input:?}, cached_input = {cached_input:?}, output = {output:?} }}", quoted(model))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Price, String> {
        let table: Table = text.parse().expect("BUG: a test gives TOML");
        price("m", &Value::Table(table))
    }

    #[test]
    fn prices_are_of_a_million_tokens() {
        let price = read("input = 1.25\ncached_input = 0.125\noutput = 10").expect("it is valid");
        assert_eq!(price.of(1_000_000, 0, 0), 1_250_000);
        assert_eq!(price.of(1_000_000, 1_000_000, 0), 125_000);
        assert_eq!(price.of(2_000_000, 1_000_000, 500_000), 6_375_000);
        assert_eq!(price.of(0, 5, 0), 0);
        assert_eq!(read("input = 2\noutput = 3").expect("it is valid").of(1_000_000, 1_000_000, 0), 2_000_000);
        assert_eq!(read("input = 1e6\noutput = 1e6").expect("it is valid").of(u64::MAX, 0, u64::MAX), u64::MAX);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expect) in [
            ("output = 1", "no `input`"),
            ("input = 1", "no `output`"),
            ("input = -1\noutput = 1", "input: it must be a number from 0"),
            ("input = nan\noutput = 1", "input: it must be a number"),
            ("input = \"1\"\noutput = 1", "input: it must be a number"),
            ("input = 1\noutput = 1\ncached = 1", "unknown member `cached`"),
        ] {
            let why = read(text).expect_err("it is not valid");
            assert!(why.contains(expect), "{why}");
        }
    }
}
