//! The built-in recipes.

use crate::{Recipe, RecipeError};

/// A built-in recipe.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// Its name.
    pub name: &'static str,
    /// The TOML; its first line is the description.
    pub text: &'static str,
}

/// All built-in recipes, the default first.
pub const BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        name: "stories",
        text: include_str!("../../../recipes/stories.toml"),
    },
    BuiltIn {
        name: "stories-gpt2",
        text: include_str!("../../../recipes/stories-gpt2.toml"),
    },
    BuiltIn {
        name: "shakespeare-char",
        text: include_str!("../../../recipes/shakespeare-char.toml"),
    },
];

/// The recipe of this name.
pub fn find(name: &str) -> Option<BuiltIn> {
    BUILT_IN.iter().copied().find(|recipe| recipe.name == name)
}

impl BuiltIn {
    /// The first line, without its hash.
    pub fn description(&self) -> &'static str {
        let first = self.text.lines().next().unwrap_or_default();
        first.trim_start_matches('#').trim()
    }

    /// The recipe with changes.
    pub fn parse(&self, changes: &[String]) -> Result<Recipe, RecipeError> {
        Recipe::parse(self.text, changes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_recipe_parses_and_says_what_it_is() {
        for recipe in BUILT_IN {
            recipe
                .parse(&[])
                .unwrap_or_else(|error| panic!("{}: {error}", recipe.name));
            assert!(recipe.description().len() > 20, "{}", recipe.name);
        }
    }
}
