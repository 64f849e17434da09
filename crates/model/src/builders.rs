//! What makes settings short to write in Rust: chained setters, and conversions of one kind's settings into those of any kind.
//!
//! ```text
//! BlockConfig::pre_norm(FullAttentionConfig::new(8), PlainConfig::new(2048).with_activation(Activation::Relu)).with_dropout(0.1)
//! ```

#[cfg(test)]
mod tests;

/// Declares chained setters, each of the field that its argument is named after. What follows `=>` converts the argument:
/// `Some` for an optional setting, `Into::into` for one that has several kinds.
///
/// For the crates of this workspace that have settings.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    (@value $value:ident) => { $value };
    (@value $value:ident $convert:path) => { $convert($value) };
    ($($name:ident($field:ident: $type:ty $(=> $convert:path)?);)*) => {$(
        #[doc = concat!("Sets [`", stringify!($field), "`](#structfield.", stringify!($field), ").")]
        #[must_use]
        pub fn $name(mut self, $field: $type) -> Self {
            self.$field = $crate::setters!(@value $field $($convert)?);
            self
        }
    )*};
}

/// Converts the settings of each kind into the enum of all kinds.
macro_rules! from_kinds {
    ($all:ident: $($kind:ident($config:ty)),* $(,)?) => {$(
        impl From<$config> for $all {
            fn from(config: $config) -> Self {
                Self::$kind(config)
            }
        }
    )*};
}

pub(crate) use from_kinds;
