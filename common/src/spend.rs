//! What runs use up and budgets count: tokens, and money in micro-dollars.

use serde::{Deserialize, Serialize};

/// Most tokens and most micro-dollars of one run, and of one limit: scripts count in 64-bit floats, which are exact this far.
pub const UNITS_MAX: u64 = 1_000_000_000_000_000;
const MICRO: u32 = 1_000_000;

/// Tokens and money: what a task is expected to use, or what a run has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Spend {
    /// Tokens of language models.
    #[serde(skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// Money, in millionths of a US dollar.
    #[serde(skip_serializing_if = "is_zero")]
    pub micro_usd: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Spend {
    /// So many tokens.
    #[must_use]
    pub const fn tokens(tokens: u64) -> Self {
        Self { tokens, micro_usd: 0 }
    }

    /// So many millionths of a US dollar.
    #[must_use]
    pub const fn micro_usd(micro_usd: u64) -> Self {
        Self { tokens: 0, micro_usd }
    }

    /// Both together; each at most [`UNITS_MAX`].
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        let sum = |a: u64, b: u64| a.saturating_add(b).min(UNITS_MAX);
        Self { tokens: sum(self.tokens, more.tokens), micro_usd: sum(self.micro_usd, more.micro_usd) }
    }

    /// It is nothing.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::default()
    }

    /// No more than scripts can count.
    #[must_use]
    pub fn is_countable(self) -> bool {
        self.tokens <= UNITS_MAX && self.micro_usd <= UNITS_MAX
    }
}

/// What a run of a task is expected to use, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Estimate {
    /// Tokens; 0: it uses none, so that no budget of tokens holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Millionths of a US dollar; 0: it costs nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub micro_usd: Option<u64>,
}

impl Estimate {
    /// Nothing is known.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// As it is where it is known, and this where it is not.
    #[must_use]
    pub fn or(self, usual: Spend) -> Spend {
        Spend { tokens: self.tokens.unwrap_or(usual.tokens), micro_usd: self.micro_usd.unwrap_or(usual.micro_usd) }
    }
}

/// Reads an amount of US dollars, `12` or `0.25`, to the millionth.
///
/// # Errors
/// When it is none, has a finer part, or is above [`UNITS_MAX`].
pub fn parse_usd(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no amount of US dollars; write 12 or 0.25, to the millionth");
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() && part.is_empty() || !digits(whole) || !digits(part) || part.len() > 6 {
        return Err(wrong());
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| wrong())? };
    let part: u64 = format!("{part:0<6}").parse().map_err(|_| wrong())?;
    let micro = whole.checked_mul(u64::from(MICRO)).and_then(|n| n.checked_add(part));
    micro.filter(|n| *n <= UNITS_MAX).ok_or_else(wrong)
}

/// An amount of US dollars as programs compute it, to the nearest millionth.
///
/// # Errors
/// When it is below nothing, or above [`UNITS_MAX`].
pub fn micro_usd(usd: f64) -> Result<u64, String> {
    let micro = (usd * f64::from(MICRO)).round();
    #[expect(clippy::cast_precision_loss, reason = "10^15 is exact")]
    if !(0.0..=UNITS_MAX as f64).contains(&micro) {
        return Err(format!("{usd} is no amount of US dollars"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked: a whole number within bounds"
    )]
    Ok(micro as u64)
}

/// An amount of millionths as US dollars: `0.25`, at least two places.
#[must_use]
pub fn usd(micro_usd: u64) -> String {
    let (whole, part) = (micro_usd / u64::from(MICRO), micro_usd % u64::from(MICRO));
    let part = format!("{part:06}");
    let kept = part.trim_end_matches('0').len().max(2);
    format!("{whole}.{}", &part[..kept])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_are_read_and_written_to_the_millionth() {
        for (text, micro, back) in [
            ("0", 0, "0.00"),
            ("5", 5_000_000, "5.00"),
            ("5.00", 5_000_000, "5.00"),
            (".25", 250_000, "0.25"),
            ("0.000001", 1, "0.000001"),
            ("1000000000", UNITS_MAX, "1000000000.00"),
        ] {
            assert_eq!(parse_usd(text), Ok(micro), "{text}");
            assert_eq!(usd(micro), back);
        }
        for text in ["", ".", "-1", "1e3", "0.0000001", "1000000001", "1,5", "99999999999999999999", "$1"] {
            assert!(parse_usd(text).is_err(), "{text}");
        }
    }
}
