//! [`Joined`]: two groups of settings in one mapping.

use super::{Field, Reader, Setting, Settings, Value, ValueType};

/// The settings of two groups in one mapping, such as those of a family of methods and those of one
/// method. Their names must differ.
///
/// ```
/// use fl_core::settings::{Joined, read_yaml};
/// fl_core::settings! {
///     /// What all share.
///     struct Shared {
///         /// Rounds.
///         rounds: usize = 10;
///     }
/// }
/// fl_core::settings! {
///     /// A method.
///     struct Own {
///         /// Its weight.
///         mu: f64 = 0.1;
///     }
/// }
/// let read: Joined<Shared, Own> = read_yaml("{rounds: 3, mu: 0.5}").unwrap();
/// assert_eq!((read.shared.rounds, read.own.mu), (3, 0.5));
/// let wrong = read_yaml::<Joined<Shared, Own>>("{mue: 1}").unwrap_err();
/// assert_eq!(wrong.to_string(), "mue: no such setting; did you mean `mu`? known: rounds, mu");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Joined<A, B> {
    /// The shared settings.
    pub shared: A,
    /// The method's own settings.
    pub own: B,
}

impl<A: Settings, B: Settings> Setting for Joined<A, B> {
    fn read(value: &Value, reader: &mut Reader) -> Option<Self> {
        let names = Self::names();
        let mut found = reader.keys(value, &names)?;
        let before = reader.mistakes.len();
        let mut group = |names: &[String]| -> Value {
            let keys = value.as_mapping().into_iter().flat_map(|map| map.keys());
            let keys = keys.filter_map(Value::as_str);
            let its = keys.filter(|key| names.iter().any(|name| name == key));
            let given = its.filter_map(|key| {
                let value: &Value = found.remove(key)?;
                Some((Value::from(key), value.clone()))
            });
            Value::Mapping(given.collect())
        };
        let (shared, own) = (group(&A::names()), group(&B::names()));
        let (shared, own) = (A::read(&shared, reader), B::read(&own, reader));
        reader.unknown(&found, &names);
        (reader.mistakes.len() == before).then_some(())?;
        Some(Self {
            shared: shared?,
            own: own?,
        })
    }

    fn write(&self) -> Value {
        let mut all = serde_yaml::Mapping::new();
        for group in [self.shared.write(), self.own.write()] {
            all.extend(group.as_mapping().cloned().unwrap_or_default());
        }
        all.into()
    }

    fn value_type() -> ValueType {
        Self::group()
    }
}

impl<A: Settings, B: Settings> Settings for Joined<A, B> {
    fn doc() -> String {
        B::doc()
    }

    fn names() -> Vec<String> {
        [A::names(), B::names()].concat()
    }

    fn fields() -> Vec<Field> {
        [A::fields(), B::fields()].concat()
    }
}
