//! Checks of a part that is known by its declaration, as in a program.

use crate::{Broken, Neighbours, check, images, numbers, pixels, tasks};
use fl_core::message::SoftLabels;
use fl_core::settings::Value;
use fl_core::{
    Accountant, BoxedPart, BoxedSelector, BuildContext, Generator, PartDecl, Pool, Result, Role,
    Roster, Samples, Stream, Task,
};

/// Checks a part with these settings, which its declaration has accepted. `None` if the kit has no
/// checks for its role or its messages. A trainer or a generator is checked on those of [`tasks`],
/// [`pixels`], [`images`] and [`numbers`] for which it can be made.
pub fn check(decl: &PartDecl, settings: &Value) -> Option<std::result::Result<(), Broken>> {
    let signature = (decl.describe)().signature;
    let part = Declared { decl, settings };
    let by_task = matches!(decl.role, Role::Trainer | Role::Generator);
    if let Some(Err(error)) =
        (!by_task).then(|| decl.read(settings).and_then(|read| read.build(&plain())))
    {
        return Some(Err(Broken::new("can be made", format!("{error:#}"))));
    }
    match decl.role {
        Role::Aggregator | Role::Attack => Some(check::aggregator(&|| part.first())),
        Role::Privacy => Some(check::mechanism(&|| part.first(), Neighbours::Replaced)),
        Role::Selector => match signature.as_str() {
            Roster::NAME => Some(part.selector::<Roster>()),
            Samples::NAME => Some(part.selector::<Samples>()),
            SoftLabels::NAME => Some(part.selector::<SoftLabels>()),
            _ => None,
        },
        Role::Trainer => {
            let all = tasks().into_iter().chain([pixels(), images(), numbers()]);
            let tasks = part.tasks(all.collect());
            Some(check::trainer(&tasks, &|make| part.build(make)))
        }
        Role::Generator => {
            // some networks double the sides of an image, and need sides that can be halved
            let mut all = tasks();
            let image = all.swap_remove(1);
            let input = vec![1, 8, 8];
            let tasks = part.tasks(vec![
                all.swap_remove(0),
                Task {
                    input,
                    ..image.clone()
                },
                image,
            ]);
            Some(check::generator(&tasks, &|make| {
                part.build::<Box<dyn Generator>>(make)
            }))
        }
        Role::Accountant => Some(check::accountant(&|| part.first::<Box<dyn Accountant>>())),
        Role::Protocol => None,
    }
}

/// Returns the context of the first of [`tasks`].
fn plain() -> BuildContext {
    context(tasks().swap_remove(0))
}

fn context(task: Task) -> BuildContext {
    BuildContext::new(task, Stream::root(1))
}

struct Declared<'a> {
    decl: &'a PartDecl,
    settings: &'a Value,
}

impl Declared<'_> {
    fn build<P: BoxedPart>(&self, make: &BuildContext) -> Result<P> {
        self.decl.make(self.settings, make)
    }

    /// Returns the tasks for which it can be made; else such tasks with larger images; or all if
    /// there are none.
    fn tasks(&self, all: Vec<Task>) -> Vec<Task> {
        let made = |task: &&Task| {
            let read = self.decl.read(self.settings);
            read.and_then(|read| read.build(&context((*task).clone())))
                .is_ok()
        };
        let some = |of: &[Task]| of.iter().filter(made).cloned().collect::<Vec<_>>();
        let fit = [some(&all), some(&crate::toy::larger())];
        fit.into_iter().find(|some| !some.is_empty()).unwrap_or(all)
    }

    /// Makes a part that could be made before.
    fn first<P: BoxedPart>(&self) -> P {
        let made = self.build(&plain());
        made.unwrap_or_else(|e| panic!("{} `{}`: {e:#}", self.decl.role, self.decl.name))
    }

    fn selector<P: crate::PoolSample + ?Sized>(&self) -> std::result::Result<(), Broken> {
        check::selector(&|| self.first::<BoxedSelector<P>>(), false)
    }
}
