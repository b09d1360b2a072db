//! What few test rows, or test rows of one kind, leave unmeasured.

use fl_core::{Examples, Labels, first_names};

/// Says that there are so few test rows that a measure of them means little; `None` if there are
/// enough, or none.
pub(crate) fn few(tests: &Examples) -> Option<String> {
    const FEW: usize = 10;
    let n = tests.len();
    let (are, s) = if n == 1 { ("is", "") } else { ("are", "s") };
    let share = 100.0 / n as f64;
    (0 < n && n < FEW).then(|| {
        format!("there {are} {n} test row{s}: one row has a weight of {share:.0} % in each measure")
    })
}

/// Says that all test rows are of one of several classes, as a file that is sorted by class gives
/// them; `None` if they are not, or too few to tell.
pub(crate) fn of_one_class(tests: &Examples, classes: &[String]) -> Option<String> {
    const FEW: usize = 10;
    let of = tests.classes().filter(|of| of.len() >= FEW)?;
    let same = classes.len() > 1 && of.iter().all(|class| *class == of[0]);
    same.then(|| {
        let auc = if classes.len() == 2 { ", and `auc` is missing" } else { "" };
        format!(
            "all {} test rows are of the class `{}`: how well a model tells the {} classes apart is not measured{auc}",
            of.len(),
            classes[of[0] as usize],
            classes.len()
        )
    })
}

/// Says that the label of all `what` rows is one number; `None` if it is not, or if they are too
/// few to tell.
pub(crate) fn of_one_number(rows: &Examples, what: &str) -> Option<String> {
    const FEW: usize = 10;
    let of = rows.numbers().filter(|of| of.of().nrows() >= FEW)?;
    let (all, first) = (of.of(), of.of().row(0).to_owned());
    let same = all.rows().into_iter().all(|row| row == first);
    same.then(|| {
        format!(
            "all {} {what} rows have the same label: they do not tell how it depends on the inputs",
            all.nrows()
        )
    })
}

/// Names the labels that no test row has, or that no test row lacks; `None` if there are none.
pub(crate) fn of_one_value(tests: &Examples, labels: &[String]) -> Option<String> {
    let Labels::Multi(of) = &**tests.labels() else {
        return None;
    };
    let some = |label: usize, value: i8| {
        let mut ids = tests.samples.ids().iter();
        ids.any(|id| of[[*id as usize, label]] == value)
    };
    let same = labels.iter().enumerate();
    let same: Vec<String> = same
        .filter(|(label, _)| !some(*label, 0) || !some(*label, 1))
        .map(|(_, name)| format!("`{name}`"))
        .collect();
    (!same.is_empty()).then(|| {
        let score = if same.len() == labels.len() {
            "there is no `mauc`"
        } else {
            "`mauc` is a mean over the others"
        };
        format!(
            "{} of {} labels are the same in all test rows that have them, so {score}: {}",
            same.len(),
            labels.len(),
            first_names(&same, 5)
        )
    })
}

/// Names the classes of pixels, besides the background, that no test mask has; `None` if there are
/// none.
pub(crate) fn of_no_mask(tests: &Examples, classes: &[String]) -> Option<String> {
    let truth = tests.masks()?;
    let mut has = [false; 256];
    truth
        .of()
        .iter()
        .for_each(|of| has[usize::from(*of)] = true);
    let absent = (1..truth.classes()).filter(|class| !has[*class]);
    let absent: Vec<String> = absent
        .filter_map(|class| Some(format!("`{}`", classes.get(class)?)))
        .collect();
    (!absent.is_empty()).then(|| {
        format!(
            "no test mask has {} ({} of {} classes besides the background); an image where none of \
             it is predicted counts as 1 in `dice`",
            first_names(&absent, 5),
            absent.len(),
            truth.classes() - 1
        )
    })
}
