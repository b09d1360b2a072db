//! The words that a spec can choose between inside its sections and parts: splits, networks,
//! layers, optimisers.

use crate::catalogue::Catalogue;
use crate::data_section::DataSection;
use fl_core::settings::{Field, Step, ValueType, show_path};

/// One word.
#[derive(Clone, Debug)]
pub struct Choice {
    /// As it stands in a spec.
    pub name: String,
    /// Where: `data.split`, or `net` of trainer `dfdx`.
    pub of: String,
    /// The setting: `split`, `net`; none for the words of a list's items, such as layers.
    pub setting: Option<String>,
    /// What it means.
    pub doc: String,
    /// What stands under it: settings, or one value without a name.
    pub fields: Vec<Field>,
}

impl Catalogue {
    /// Every word that can be chosen, in the data section or in the settings of a part; names of
    /// data sets are not among them.
    pub fn choices<D: DataSection>(&self) -> Vec<Choice> {
        let mut all = Vec::new();
        let shown = |path: &[Step]| show_path(path).replace("[0]", "[]");
        let data = |path: &[Step]| format!("`data.{}`", shown(path));
        walk(&D::value_type(), &mut Vec::new(), &data, &mut all);
        for part in self.parts() {
            let of = |path: &[Step]| format!("`{}` of {} `{}`", shown(path), part.role, part.name);
            walk(&(part.describe)().group(), &mut Vec::new(), &of, &mut all);
        }
        all
    }
}

fn walk(
    values: &ValueType,
    path: &mut Vec<Step>,
    of: &dyn Fn(&[Step]) -> String,
    all: &mut Vec<Choice>,
) {
    match values.plain().0 {
        ValueType::Choice { words, others, .. } => {
            let is_set = path.last() == Some(&Step::Key("set".into()));
            let setting = match path.last() {
                Some(Step::Key(key)) => Some(key.clone()),
                _ => None,
            };
            for word in words {
                if !is_set {
                    all.push(Choice {
                        name: word.name.clone(),
                        of: of(path),
                        setting: setting.clone(),
                        doc: word.doc.clone(),
                        fields: word.value.as_ref().map(fields).unwrap_or_default(),
                    });
                }
                if let Some(inner) = &word.value {
                    below(&word.name, inner, path, of, all);
                }
            }
            others.iter().for_each(|inner| walk(inner, path, of, all));
        }
        ValueType::Group { fields, .. } => {
            for field in fields {
                below(&field.name, &field.accepts, path, of, all);
            }
        }
        ValueType::Map(inner) => walk(inner, path, of, all),
        ValueType::List { items, .. } => {
            path.push(Step::Item(0));
            walk(items, path, of, all);
            path.pop();
        }
        _ => {}
    }
}

fn below(
    name: &str,
    inner: &ValueType,
    path: &mut Vec<Step>,
    of: &dyn Fn(&[Step]) -> String,
    all: &mut Vec<Choice>,
) {
    path.push(Step::Key(name.into()));
    walk(inner, path, of, all);
    path.pop();
}

/// The settings that stand under a word.
fn fields(values: &ValueType) -> Vec<Field> {
    match values.plain().0 {
        ValueType::Group { fields, .. } => fields.clone(),
        _ => vec![Field {
            name: "(the value)".into(),
            doc: String::new(),
            default: None,
            accepts: values.clone(),
        }],
    }
}
