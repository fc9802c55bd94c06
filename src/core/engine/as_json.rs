//! How the engine's state is written for the program that takes over from this one: as JSON, which knows neither keys that are not
//! texts nor texts that a program has compiled in.

/// Maps as lists of pairs.
pub(super) mod pairs {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::engine) fn serialize<'a, K, V, M, S>(map: &'a M, serializer: S) -> Result<S::Ok, S::Error>
    where
        &'a M: IntoIterator<Item = (&'a K, &'a V)>,
        K: Serialize + 'a,
        V: Serialize + 'a,
        S: Serializer,
    {
        serializer.collect_seq(map)
    }

    pub(in crate::engine) fn deserialize<'de, K, V, M, D>(deserializer: D) -> Result<M, D::Error>
    where
        K: Deserialize<'de>,
        V: Deserialize<'de>,
        M: FromIterator<(K, V)>,
        D: Deserializer<'de>,
    {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}

/// Texts that the program has compiled in. One that is read stays in memory: there are few, and a hub is handed over seldom.
pub(super) mod compiled_in {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// One such text. The alias keeps serde from borrowing it as it would a plain `&str`.
    pub(in crate::engine) type CompiledIn = &'static str;

    /// A shape of such texts.
    pub(in crate::engine) trait Shape: Sized {
        type Owned: for<'de> Deserialize<'de>;

        fn of(owned: Self::Owned) -> Self;
    }

    impl Shape for &'static str {
        type Owned = String;

        fn of(owned: String) -> &'static str {
            owned.leak()
        }
    }

    impl Shape for Option<&'static str> {
        type Owned = Option<String>;

        fn of(owned: Option<String>) -> Option<&'static str> {
            owned.map(Shape::of)
        }
    }

    impl Shape for Option<(&'static str, &'static str)> {
        type Owned = Option<(String, String)>;

        fn of(owned: Option<(String, String)>) -> Option<(&'static str, &'static str)> {
            owned.map(|(one, other)| (Shape::of(one), Shape::of(other)))
        }
    }

    pub(in crate::engine) fn serialize<T: Serialize, S: Serializer>(
        text: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        text.serialize(serializer)
    }

    pub(in crate::engine) fn deserialize<'de, T: Shape, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        T::Owned::deserialize(deserializer).map(T::of)
    }
}
