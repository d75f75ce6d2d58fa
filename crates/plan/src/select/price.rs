//! What a byte that is written must save.

/// The price of one byte in time; its unit is 2^-20 nanoseconds per byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price(pub u64);

/// How many units of a [`Price`] a nanosecond has.
pub const UNIT: u128 = 1 << 20;

impl Price {
    /// The highest.
    pub const MOST: Self = Self(u64::MAX >> 1);
    /// The least is above zero, so that bytes are never moved without a gain.
    pub const LEAST: Self = Self(1);

    /// A price in seconds per GiB; a negative one, or NaN, counts as the least.
    pub fn per_gib(seconds: f64) -> Self {
        Self(((seconds * 1e9 / f64::from(1 << 30) * UNIT as f64) as u64).clamp(1, Self::MOST.0))
    }

    /// The price whose logarithm is half way between two.
    #[must_use]
    pub fn between(self, other: Self) -> Self {
        Self((self.0.isqrt() * other.0.isqrt()).clamp(self.0.min(other.0), self.0.max(other.0)))
    }

    /// Whether so many bytes are worth it that save so many nanoseconds.
    pub fn is_worth(self, bytes: u64, saved_ns: u128) -> bool {
        saved_ns.saturating_mul(UNIT) > u128::from(bytes) * u128::from(self.0)
    }

    /// What so many bytes cost, in nanoseconds.
    pub fn of(self, bytes: u64) -> u128 {
        u128::from(bytes) * u128::from(self.0) / UNIT
    }
}
