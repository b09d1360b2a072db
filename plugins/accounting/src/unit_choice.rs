//! [`UnitChoice`]: the setting `unit` of accountants.
use fl_core::choices;
use fl_core::privacy::Unit;

choices! {
    /// The unit to protect, if a release has a price for either.
    pub enum UnitChoice {
        /// One example of one client.
        Example = "example",
        /// A whole client.
        Party = "party",
    }
}

impl UnitChoice {
    pub(crate) fn unit(&self) -> Unit {
        match self {
            Self::Example => Unit::Example,
            Self::Party => Unit::Party,
        }
    }
}
