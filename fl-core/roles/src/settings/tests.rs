use super::*;

crate::settings! {
    /// Inner.
    pub struct Inner {
        /// Steps.
        steps: usize = 5, in 1..=10;
        /// A rate.
        rate: Option<f64> = None, in between(0.0, 1.0);
    }
}
crate::choices! {
    /// How.
    pub enum How {
        /// Simply.
        Plain = "plain",
        /// With care.
        Careful(Inner) = "careful",
    }
}
crate::settings! {
    /// Outer.
    pub struct Outer {
        /// How it is done.
        how: How = How::Plain;
        /// Several.
        warm_up: Vec<f64> = vec![], in 0.0..;
        /// Needed.
        name: String;
    }
}

#[test]
fn all_mistakes_come_at_once_with_their_paths() {
    let bad =
        "{how: {careful: {steps: 0, rate: 1.0, stepz: 1}}, warm-up: [1, -2, x], nam: 3, 7: 8}";
    insta::assert_snapshot!(read_yaml::<Outer>(bad).unwrap_err(), @r"
    a setting's name must be text, got 7; known: how, warm-up, name
    how.careful.steps: must be in 1..=10, got 0
    how.careful.rate: must be above 0.0 and below 1.0, got 1.0
    how.careful.stepz: no such setting; did you mean `steps`? known: steps, rate
    warm-up[2]: must be a number, got `x`
    name: is missing (text)
    nam: no such setting; did you mean `name`? known: how, warm-up, name
    ");
}

#[test]
fn what_is_written_reads_back() {
    let outer: Outer = read_yaml("{name: n, how: {careful: {rate: 0.5}}, warm-up: [1]}").unwrap();
    assert_eq!(
        outer.how,
        How::Careful(Inner {
            steps: 5,
            rate: Some(0.5)
        })
    );
    assert_eq!(read_value::<Outer>(&outer.write()).unwrap(), outer);
}

#[test]
fn json_is_yaml_too() {
    assert_eq!(read_yaml::<Inner>(r#"{"steps": 3}"#).unwrap().steps, 3);
}

#[test]
fn the_description_says_what_the_reader_checks() {
    let fields = [Inner::fields(), Outer::fields()].concat();
    let row = |f: &Field| {
        format!(
            "{}: {} ({})",
            f.name,
            f.accepts.kind(),
            f.accepts.range().unwrap_or_default()
        )
    };
    let rows: Vec<_> = fields.iter().map(row).collect();
    insta::assert_snapshot!(rows.join("\n"), @"
    steps: whole number (in 1..=10)
    rate: number (above 0.0 and below 1.0)
    how: one of plain, {careful: ..} ()
    warm-up: list of: number (at least 0.0)
    name: text ()
    ");
    // as it crosses to a program that loads the part
    let text = serde_json::to_string(&fields).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Field>>(&text).unwrap(), fields);
    // a default of null differs from none
    assert!(text.contains(r#""default":null"#), "{text}");
}

crate::settings! {
    /// Numbers.
    struct Numbers {
        /// With a point.
        rate: f64 = 1.0, in above(0.0);
        /// Whole.
        steps: usize = 1, in 1..;
    }
}

#[test]
fn a_number_that_was_written_as_text_is_a_number() {
    let read = read_yaml::<Numbers>("{rate: '1e-3', steps: '20'}").unwrap();
    assert_eq!((read.rate, read.steps), (1e-3, 20));
    let wrong = read_yaml::<Numbers>("{rate: nan, steps: '1e3'}").unwrap_err();
    let due = "rate: must be a number, got `nan`\nsteps: must be a whole number, got `1e3`";
    assert_eq!(wrong.to_string(), due);
    let low = read_yaml::<Numbers>("{rate: '-1e-3', steps: '0'}").unwrap_err();
    let due = "rate: must be above 0.0, got -0.001\nsteps: must be at least 1, got 0";
    assert_eq!(low.to_string(), due);
}

#[test]
fn exact_numbers_are_written_so_that_every_reader_reads_numbers() {
    let value: Value =
        serde_yaml::from_str("{a: 1e-8, b: [1.5e-9, 1e30], c: 0.001, d: '1e-8'}").unwrap();
    let text = to_yaml(&value).unwrap();
    insta::assert_snapshot!(text, @"
    a: 1.0e-8
    b:
    - 1.5e-9
    - 1.0e+30
    c: 0.001
    d: '1e-8'
    ");
    let lines: Value = "first 1e-3\n1e-3\n".into();
    let text = to_yaml(&lines).unwrap();
    assert_eq!(serde_yaml::from_str::<Value>(&text).unwrap(), lines);
}
