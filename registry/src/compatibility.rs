//! Do the parts that were made do what the protocol needs of them?

use crate::check::{CheckedProtocol, Fill};
use crate::training_check::TrainingCheck;
use fl_core::message::{
    Counts, Erased, Ids, Message as _, MessageType, SampleShape, VoteSensitivity, digest,
};
use fl_core::privacy::Unit;
use fl_core::settings::show_path;
use fl_core::{
    Ability, Accountant, AnyAggregator, AnyMechanism, AnySelector, BoxedPart, COUNTS, ClientId,
    ClientMessage, Cohort, ExchangeSpec, FitOptions, Length, LogEvent, Loss, PassStep, Pool,
    PrivacyEvent, Problem, Role, Roster, Round, Samples, SamplingScheme, SlotSpec, Stream, Target,
    Task, TaskKind, Trainer, named_clients, parameters_in,
};
use ndarray::Array2;
use std::any::Any;
use std::collections::BTreeMap;

/// Parameters by name, each with its shape.
type Shapes = BTreeMap<String, Vec<usize>>;

/// What is remembered from one part to the next.
pub(crate) struct CompatibilityCheck<'f> {
    protocol: Option<&'f CheckedProtocol>,
    pub trainings: TrainingCheck<'f>,
    /// The largest number of a word in the rows, if it is known; 0 if they hold other numbers.
    pub words: Option<usize>,
    /// By slot: the first model whose parameters are to be combined with others, and where it
    /// stands.
    alike: BTreeMap<&'f str, (String, Shapes)>,
    /// By slot: the number of features of the first model whose features are to be combined with
    /// others, and where it stands.
    features: BTreeMap<&'f str, (String, usize)>,
    accountant: Option<(&'static str, Box<dyn Accountant>)>,
    /// How the selectors of clients draw, by slot.
    draws: BTreeMap<&'f str, SamplingScheme>,
    /// What releases something.
    releases: Vec<Releasing<'f>>,
    /// Whether a client that cannot answer is left out.
    drops: bool,
}

/// A mechanism that releases something.
struct Releasing<'f> {
    fill: &'f Fill,
    part: Box<dyn AnyMechanism>,
    task: Task,
}

impl<'f> CompatibilityCheck<'f> {
    /// `drops`: a client that cannot answer is left out.
    pub fn new(
        protocol: Option<&'f CheckedProtocol>,
        trainings: TrainingCheck<'f>,
        drops: bool,
    ) -> Self {
        Self {
            drops,
            protocol,
            trainings,
            words: None,
            alike: BTreeMap::new(),
            features: BTreeMap::new(),
            accountant: None,
            draws: BTreeMap::new(),
            releases: Vec::new(),
        }
    }

    /// What this part cannot do although its slot needs it.
    pub fn part(
        &mut self,
        slot: &SlotSpec,
        fill: &'f Fill,
        part: Box<dyn Any + Send>,
        task: &Task,
    ) -> Vec<String> {
        match slot.role {
            Role::Trainer => match part.downcast::<Box<dyn Trainer>>() {
                Ok(model) => self.model(slot, fill, *model, task),
                Err(_) => Vec::new(),
            },
            Role::Selector => match <Box<dyn AnySelector>>::cast(part) {
                Some(selector) if selector.pool() == Samples::NAME && selector.needs_scores() => {
                    no_scores(slot, task).into_iter().collect()
                }
                Some(selector) if selector.pool() == Roster::NAME => {
                    self.draws.insert(&fill.slot, selector.draw());
                    Vec::new()
                }
                _ => Vec::new(),
            },
            Role::Accountant => {
                if let Ok(accountant) = part.downcast::<Box<dyn Accountant>>() {
                    self.accountant = Some((fill.part.decl.name, *accountant));
                }
                Vec::new()
            }
            Role::Attack => match <Box<dyn AnyAggregator>>::cast(part) {
                Some(part) => self.attack(fill, part, task).into_iter().collect(),
                None => Vec::new(),
            },
            Role::Privacy => match <Box<dyn AnyMechanism>>::cast(part) {
                Some(part) => self.mechanism(slot, fill, part, task),
                None => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Names clients with too few examples for this sample of their own; notes them, if they can be
    /// left out.
    fn too_few(&mut self, fill: &'f Fill, part: &dyn AnyMechanism) -> Option<String> {
        if part.on().kind != Ids::KIND {
            return None;
        }
        // an accountant keeps the sizes secret, and then clients without examples take part too
        let secret = self.trainings.accounts;
        let mut sizes = self.trainings.sizes_of(fill)?;
        sizes.retain(|(_, n)| secret || *n > 0);
        let mut known: BTreeMap<usize, Option<String>> = BTreeMap::new();
        let mut why = |n: usize| {
            let draw = || {
                let own = Ids((0..n as u32).collect());
                let refused = part.price(&own, &Cohort::all(1)).err()?;
                Some(format!("{refused:#}"))
            };
            known.entry(n).or_insert_with(draw).clone()
        };
        let few = sizes.iter().filter_map(|(id, n)| Some((*id, *n, why(*n)?)));
        let few: Vec<(ClientId, usize, String)> = few.collect();
        let (_, least, why) = few.iter().min_by_key(|(_, n, _)| *n)?;
        let ids: Vec<ClientId> = few.iter().map(|(id, ..)| *id).collect();
        let goes_on = self.drops && few.len() < sizes.len();
        if secret {
            return (!goes_on).then(|| format!("it cannot draw at every client: {why}"));
        }
        let named = named_clients(&ids);
        let text = format!("it cannot draw at {named}: {why}; the smallest has {least}");
        if goes_on {
            self.trainings.note_once(fill, text);
            return None;
        }
        Some(text)
    }

    /// What an attack on the classes of two samples lacks for this task, or that it has no effect.
    /// Keeps its notes.
    fn attack(
        &mut self,
        fill: &'f Fill,
        mut attack: Box<dyn AnyAggregator>,
        task: &Task,
    ) -> Option<String> {
        let honest = small(attack.input(), task).filter(|honest| honest.classes().is_some())?;
        let (classes, due) = (honest.classes(), digest(&*honest));
        let honest = ClientMessage::new(0, 1.0, honest);
        let inbox = attack.input().inbox(vec![honest]).ok()?;
        let round = Round::first();
        let forged = attack.aggregate(&round, &*inbox);
        if classes == Some(1) && forged.as_ref().is_ok_and(|forged| digest(&**forged) == due) {
            let text =
                "it changes nothing where answers have one class or one output: use another attack";
            return Some(text.into());
        }
        for said in round.take_log() {
            if let LogEvent::Note(text) = said {
                self.trainings.note_once(fill, text);
            }
        }
        lacks(forged.map(drop))
    }

    fn mechanism(
        &mut self,
        slot: &SlotSpec,
        fill: &'f Fill,
        part: Box<dyn AnyMechanism>,
        task: &Task,
    ) -> Vec<String> {
        let mut wrong = Vec::from_iter(self.unagreed(slot, &*part, task));
        if slot.only_clips {
            let event = release(part, task, &Cohort::all(1), None);
            let event = event.and_then(Result::ok);
            let noise = event.filter(|event| !matches!(event, PrivacyEvent::Unaccounted { .. }));
            wrong.extend(noise.map(|event| format!(
                "the mechanism adds noise ({event}), but this slot only clips and would never draw it; use a slot that releases"
            )));
        } else if self.is_asked(slot) {
            wrong.extend(self.too_few(fill, &*part));
            let task = task.clone();
            self.releases.push(Releasing { fill, part, task });
        }
        wrong
    }

    /// Says that the mechanism needs a range on which all clients agree, and the protocol has no
    /// exchange for it.
    fn unagreed(&self, slot: &SlotSpec, part: &dyn AnyMechanism, task: &Task) -> Option<String> {
        let protocol = self.protocol?;
        let agrees = |q: &ExchangeSpec| q.requested_by == Some(slot.name);
        part.range(&*small(part.on(), task)?)?;
        (!protocol.asked.iter().any(agrees)).then(|| format!(
            "its bound is a range on which all clients agree, and protocol `{}` has no exchange for that in this slot: take a bound \
             that needs none, such as `z-max: per-client` of `quantise`",
            protocol.name
        ))
    }

    /// Does the protocol, set as it is, release anything through this slot?
    fn is_asked(&self, slot: &SlotSpec) -> bool {
        let asked = self.protocol.into_iter().flat_map(|p| &p.asked);
        asked.into_iter().any(|q| q.goes_through(slot.name))
    }

    fn model(
        &mut self,
        slot: &SlotSpec,
        fill: &'f Fill,
        mut model: Box<dyn Trainer>,
        task: &Task,
    ) -> Vec<String> {
        let protocol = self.protocol.map_or("", |p| &p.name);
        let mut wrong: Vec<String> = slot
            .needs
            .iter()
            .filter_map(|ability| lacking(ability, slot, &mut *model, task, protocol))
            .collect();
        wrong.extend(self.other_words(&*model));
        wrong.extend(self.unnamed(slot, &mut *model));
        wrong.extend(self.groups(slot, fill, &mut *model));
        wrong.extend(self.trainings.model(slot, fill, &mut *model));
        wrong.extend(self.other_features(slot, fill, &mut *model, task));
        let shapes = model.parametric().filter(|_| slot.alike).map(|m| {
            let shape =
                |(name, tensor): (String, ndarray::ArrayD<f32>)| (name, tensor.shape().to_vec());
            m.params().0.into_iter().map(shape).collect::<Shapes>()
        });
        let Some(shapes) = shapes else { return wrong };
        match self.alike.get(fill.slot.as_str()) {
            None => {
                let first = (show_path(&fill.path), shapes);
                self.alike.insert(&fill.slot, first);
            }
            Some((first, due)) => wrong.extend(differ(due, &shapes).map(|how| {
                format!(
                    "its parameters are combined with those of {first}, and they differ: {how}; give all clients the same \
                     network, or use a protocol that sends predictions"
                )
            })),
        }
        wrong
    }

    /// Why this model cannot look up what the rows hold, if it looks up words.
    fn other_words(&self, model: &dyn Trainer) -> Option<String> {
        let known = model.abilities().vocabulary?;
        match self.words? {
            0 => Some(
                "its first layer looks up the numbers of words, and the rows hold other numbers: \
                 use a network without `embedding`, or rows of words, such as `words` of `ag-news`"
                    .into(),
            ),
            words if words >= known => Some(format!(
                "its first layer knows words up to number {}, and the rows hold numbers up to \
                 {words}: it must know numbers up to {words} (`dfdx`: `vocabulary: {words}`; a \
                 network of PyTorch: {} rows)",
                known.saturating_sub(1),
                words.saturating_add(1)
            )),
            _ => None,
        }
    }

    /// How the features of this model differ from those that they are combined with.
    fn other_features(
        &mut self,
        slot: &SlotSpec,
        fill: &'f Fill,
        model: &mut dyn Trainer,
        task: &Task,
    ) -> Option<String> {
        if !slot.alike_features {
            return None;
        }
        let found = one_sample(task).and_then(|x| model.features(&x));
        let found = found.ok().flatten()?;
        let here = (show_path(&fill.path), found.ncols());
        let (first, due) = self.features.entry(&fill.slot).or_insert(here);
        (found.ncols() != *due).then(|| {
            format!(
                "it has {} features, and {first} has {due}: protocol `{}` combines them; give all clients networks with as many",
                found.ncols(),
                self.protocol.map_or("", |p| &p.name)
            )
        })
    }

    /// A beginning of names that the protocol's settings give, and the model lacks.
    fn unnamed(&self, slot: &SlotSpec, model: &mut dyn Trainer) -> Option<String> {
        let all = model.parametric()?.params().0;
        let lacks = |begin: &&String| !all.keys().any(|name| name.starts_with(*begin));
        let begin = slot.named.iter().find(lacks)?;
        Some(format!(
            "protocol `{}` is set for parameters whose names begin with `{begin}`, and it has `{}`",
            self.protocol.map_or("", |p| &p.name),
            Vec::from_iter(all.into_keys()).join("`, `")
        ))
    }

    /// Groups of parameters that the protocol sends or leaves at the clients, and the model lacks.
    /// Notes groups that are the whole model.
    fn groups(
        &mut self,
        slot: &SlotSpec,
        fill: &'f Fill,
        model: &mut dyn Trainer,
    ) -> Option<String> {
        let model = model.parametric()?;
        let asked = self.protocol.into_iter().flat_map(|p| &p.asked);
        let shares = asked.filter(|q| q.model == slot.name && !q.shares.is_empty());
        for asked in shares {
            match parameters_in(&asked.shares, model) {
                Err(error) => return Some(error.to_string()),
                Ok(named) if named.len() == model.params().0.len() => {
                    let text = format!(
                        "`{}` names all of its parameters, so clients keep none of their own: name fewer, or leave `share` out",
                        asked.shares.join(", ")
                    );
                    self.trainings.note_once(fill, text);
                }
                Ok(_) => {}
            }
        }
        None
    }

    /// Mechanisms that cannot release in their slots. Also those whose releases the accountant has
    /// no price for, or only one that does not add up with another's. No `budget` can be kept for a
    /// price that follows the data.
    pub fn prices(self, budget: bool) -> Vec<(&'f Fill, String)> {
        let accountant = self.accountant;
        let mut first: Option<(&Fill, Unit)> = None;
        let (protocol, draws) = (self.protocol, self.draws);
        let release = |releasing: Releasing<'f>| {
            let cohort = drawn(protocol, &releasing.fill.slot, &draws);
            let votes = votes(protocol, &releasing.fill.slot);
            let event = release(releasing.part, &releasing.task, &cohort, votes)?;
            Some((releasing.fill, event))
        };
        let refused = |(fill, event): (&'f Fill, Result<PrivacyEvent, Problem>)| {
            if let Err(Problem::Lacks(why)) = event {
                return Some((fill, why));
            }
            let (name, accountant) = accountant.as_ref()?;
            let priced = event.map(|event| accountant.guarantee(Some(&event)));
            let why = match priced {
                Err(why) => why.to_string(),
                Ok(Err(error)) => unpriced(&error)?,
                Ok(Ok(guarantee)) if guarantee.data_dependent && budget => {
                    let text = "its price depends on the data, so no budget can be kept: set `data-dependent: false` of votes, or \
                                `min-examples` of a sample of examples";
                    return Some((fill, text.into()));
                }
                Ok(Ok(guarantee)) => {
                    let (other, unit) = *first.get_or_insert((fill, guarantee.unit));
                    let text = format!(
                        "it protects one {}, and parts.{} protects one {unit}: the two guarantees do not add up; a mechanism for a \
                         whole party bounds everything that a client sends",
                        guarantee.unit, other.slot
                    );
                    return (unit != guarantee.unit).then_some((fill, text));
                }
            };
            let text = format!("its release has no price in accountant `{name}`: {why}");
            Some((fill, text))
        };
        let releases = self.releases.into_iter().filter_map(release);
        releases.filter_map(refused).collect()
    }
}

/// Whose data a release through `slot` is about, as few as can be: a random lot of a client's
/// examples, or clients who were drawn.
fn drawn(
    protocol: Option<&CheckedProtocol>,
    slot: &str,
    draws: &BTreeMap<&str, SamplingScheme>,
) -> Cohort {
    let asked: Vec<_> = protocol.into_iter().flat_map(|p| &p.asked).collect();
    let mut steps = asked.iter().filter_map(|asked| asked.flow.steps);
    if let Some((_, lots)) = steps.find(|(through, _)| *through == slot) {
        return lots.cohort();
    }
    let mut at_server = asked.iter().filter(|q| q.flow.at_server.contains(&slot));
    match at_server.find_map(|q| draws.get(q.cohort?)) {
        Some(draw) => Cohort {
            of: 2,
            draw: *draw,
            ..Cohort::all(1)
        },
        None => Cohort::all(1),
    }
}

/// How many votes of a release through `slot` one unit can change, if the protocol says so.
fn votes(protocol: Option<&CheckedProtocol>, slot: &str) -> Option<VoteSensitivity> {
    if slot == COUNTS.name() {
        // a client counts its own examples, and nothing bounds how many it has
        return Some(VoteSensitivity::of_own_examples(1));
    }
    let asked = protocol.into_iter().flat_map(|p| &p.asked);
    let mut through = asked.filter(|q| q.flow.slots().any(|of| of == slot));
    through.find_map(|q| q.votes)
}

/// The reason, if `error` says that there is no price; anything else depends on the data.
fn unpriced(error: &anyhow::Error) -> Option<String> {
    match error.downcast_ref() {
        Some(Problem::Unpriced(why)) => Some(why.clone()),
        _ => None,
    }
}

/// What a model lacks of this ability, which its slot needs, and what to do instead.
fn lacking(
    ability: &Ability,
    slot: &SlotSpec,
    model: &mut dyn Trainer,
    task: &Task,
    protocol: &str,
) -> Option<String> {
    let (lack, instead) = match ability {
        Ability::Parameters => (
            no_parameters(model)?,
            "use a neural or linear trainer, or a protocol that sends predictions or votes",
        ),
        // without parameters that is said already where parameters are needed
        Ability::ExampleGradients
            if model.parametric().is_some() || !slot.needs.contains(&Ability::Parameters) => (
            format!(
                "it gives no gradient of a single example, which DP-SGD clips, or takes no step along one ({})",
                no_gradients(model, task)?
            ),
            "use a neural or linear trainer, or leave out `sampling` and `parts.example-privacy`",
        ),
        Ability::EqualSteps if !equal_steps(model) => (
            "its steps are not all one learning rate times the gradient (momentum, Adam or a rate that changes)".to_string(),
            "use plain gradient descent, `optimiser: { sgd: { lr: .. } }` of `dfdx`, or `linear`",
        ),
        Ability::Momentum(due) if model.abilities().step_momentum != Some(*due) => (
            format!("its steps are not those of gradient descent with momentum {due} and one rate throughout"),
            "set the momentum of the protocol and of the optimiser to the same number, without `nesterov` and without a schedule (Adam has none); 0 for plain gradient descent",
        ),
        Ability::ByGradient if !model.abilities().beside_gradient.is_empty() => (
            format!("its training is not by its gradient alone (it has {})", model.abilities().beside_gradient.join(" and ")),
            "leave it out, or use a protocol that trains by mini-batches, such as `fedavg`",
        ),
        Ability::NoDecay if model.abilities().decays_weights => (
            "its steps are not by its gradient alone (it has weight decay)".to_string(),
            "set weight decay (`l2` of `linear`) to 0, or use a protocol that trains by mini-batches, such as `fedavg`",
        ),
        Ability::ByStep if model.abilities().schedules_pass || model.abilities().schedules_epoch => (
            "its learning-rate schedule does not count mini-batches (it would see a training of each, or of a few)".to_string(),
            "say after how many `steps` the schedule ends (`schedule: { cosine: { steps: .. } }`; in Python `schedule_by = \"batch\"`)",
        ),
        Ability::InputGradient if model.differentiable().is_none() => (
            "it cannot be differentiated by its input".to_string(),
            "use a neural or linear trainer, on inputs other than texts",
        ),
        Ability::Features if !has_features(model, task) => (
            "it has no layer of features before its scores".to_string(),
            "use a neural trainer, or leave features out",
        ),
        Ability::Head(features) => return no_head(*features, model, task, protocol),
        Ability::AuxiliaryLoss if model.head().is_none() => (
            "it shows no linear last layer, so it takes no further loss on its scores".to_string(),
            "use `dfdx`, with `outputs` as its last layer",
        ),
        Ability::FeatureLoss if !model.abilities().feature_loss => (
            "it has no layers before the last one that a loss on features could train".to_string(),
            "use `dfdx` with a layer before `outputs`, or a network of PyTorch",
        ),
        Ability::ScaledRate if !model.abilities().scales_rate => (
            "no round can scale its learning rate".to_string(),
            "use a neural or linear trainer, or leave out `rate`",
        ),
        Ability::GradientTerms if !model.abilities().gradient_terms => (
            "its gradients take no proximal term, no offset and no clipping".to_string(),
            "use a neural or linear trainer, settings without `mu`, `clip` and their like, or say `takes_gradient_terms` if its training follows them",
        ),
        Ability::GoesOn if model.abilities().starts_again => (
            "each of its trainings starts again, so nothing that it learnt from the others would last".to_string(),
            "use a neural or linear trainer, or a protocol that trains each model once, such as `fedkt` or `fedkd`",
        ),
        Ability::NoBuffers if has_buffers(model) => (
            "it has batch normalisation, and the loss has no term for statistics of batches".to_string(),
            "use `layer-norm` or `group-norm`, or none",
        ),
        Ability::Loss(loss) if !model.abilities().learns(*loss) => (
            format!("it cannot minimise the loss {loss}"),
            "use a neural or linear trainer, or another loss if the protocol has one",
        ),
        Ability::TaskLoss if !model.abilities().learns(task.kind.loss()) => (
            format!("it cannot minimise the loss of the labels, {}", task.kind.loss()),
            "use another trainer, or name this loss in what it `learns` if its training minimises it",
        ),
        Ability::SoftTargets => (
            format!("it learns no class probabilities ({})", no_soft_targets(model, task)?),
            match task.kind {
                TaskKind::MultiLabel(_) => "use a protocol that needs none, such as `fedavg` or `one-shot-distill`",
                _ => "use a neural or linear trainer, or a protocol that teaches one class for each sample, such as `fedkt`",
            },
        ),
        _ => return None,
    };
    Some(format!(
        "{lack}, which protocol `{protocol}` needs with these settings: {instead}"
    ))
}

/// Why a selector in this slot cannot choose samples by their scores.
fn no_scores(slot: &SlotSpec, task: &Task) -> Option<String> {
    if !slot.scores {
        return Some(
            "it chooses by a model's scores for the samples, and with these settings of the protocol this slot \
             gives it the samples or their features: set `protocol.filter-on: scores`, or use another selector"
                .into(),
        );
    }
    (!matches!(task.kind, TaskKind::Classes(_))).then(|| {
        format!(
            "it chooses by the scores of one class for each sample, and the task is {}: use another selector",
            task.kind
        )
    })
}

/// As [`lacking`], of a last layer that takes `features` numbers.
fn no_head(features: usize, model: &dyn Trainer, task: &Task, protocol: &str) -> Option<String> {
    if !matches!(task.kind, TaskKind::Classes(_)) {
        return Some(format!(
            "its task is {}, and protocol `{protocol}` generates features of one class each: use another protocol",
            task.kind
        ));
    }
    match model.head().map(|head| head.features()) {
        None => Some(format!(
            "it has no linear last layer that maps features to scores, which protocol `{protocol}` needs with these settings: \
             use `dfdx`, with `outputs` as its last layer"
        )),
        Some(found) if found != features => Some(format!(
            "its last layer takes {found} numbers of an input, and protocol `{protocol}` is set for {features}: set `protocol.features: {found}`"
        )),
        Some(_) => None,
    }
}

/// Why this model has no parameters to combine.
fn no_parameters(model: &mut dyn Trainer) -> Option<String> {
    let Some(model) = model.parametric() else {
        return Some("it has no parameters to combine".into());
    };
    let found = model.params();
    found.0.is_empty().then(|| match model.set_params(&found) {
        // a library's model keeps an error of `params` until a call that can fail
        Err(error) => format!("it gives no parameters ({error:#})"),
        Ok(()) => "it gives no parameters".into(),
    })
}

fn equal_steps(model: &mut dyn Trainer) -> bool {
    let model = model.parametric();
    model.is_none_or(|model| model.step_size().is_some())
}

fn has_buffers(model: &mut dyn Trainer) -> bool {
    let model = model.parametric();
    model.is_some_and(|model| !model.buffers().is_empty())
}

/// Why it gives no gradient of a single example, or takes no step along one. One sample decides; a
/// trainer that fails otherwise is given the benefit of the doubt.
fn no_gradients(model: &mut dyn Trainer, task: &Task) -> Option<String> {
    let Some(model) = model.parametric() else {
        return Some("it has no parameters".into());
    };
    let zero = model.params().zeros_like();
    let one = one_sample(task);
    let gradient = |x: Samples| model.gradient(&x, Target::Classes(&[0]), task.kind.loss());
    let asked = match task.kind {
        TaskKind::Classes(_) => one.and_then(gradient).map(drop),
        _ => Ok(()),
    };
    lacks(asked).or_else(|| lacks(model.descend(&zero, &PassStep::new(0, 1))))
}

/// Why it does not learn class probabilities. A training of no steps decides; a trainer that fails
/// otherwise is given the benefit of the doubt.
fn no_soft_targets(model: &mut dyn Trainer, task: &Task) -> Option<String> {
    let (TaskKind::Classes(outputs) | TaskKind::MultiLabel(outputs)) = task.kind else {
        return None;
    };
    let even = Array2::from_elem((1, outputs), 1.0 / outputs as f32);
    let pass = FitOptions::new(Length::Steps(0), 1, Loss::CrossEntropy);
    let stream = Stream::root(0).child("check", 0);
    let fitted =
        one_sample(task).and_then(|x| model.fit(&x, Target::Soft(even.view()), &pass, &stream));
    lacks(fitted.map(drop))
}

/// A sample of zeros.
fn one_sample(task: &Task) -> anyhow::Result<Samples> {
    let width = task.input.iter().product();
    Samples::fresh(Array2::zeros((1, width)), task.input.clone())
}

/// The error's text, if it says that an ability is missing.
fn lacks(result: anyhow::Result<()>) -> Option<String> {
    let error = result.err()?;
    matches!(error.downcast_ref(), Some(Problem::Lacks(_))).then(|| format!("{error:#}"))
}

/// One sample decides; a trainer that cannot look at it is given the benefit of the doubt.
fn has_features(model: &mut dyn Trainer, task: &Task) -> bool {
    let features = one_sample(task).and_then(|x| model.features(&x));
    features.map_or(true, |features| features.is_some())
}

/// The first difference.
fn differ(due: &Shapes, found: &Shapes) -> Option<String> {
    let show = |shape: &[usize]| {
        let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
        if sizes.is_empty() {
            "a single number".into()
        } else {
            sizes.join("x")
        }
    };
    let other = due.iter().find_map(|(name, shape)| match found.get(name) {
        None => Some(format!("it has no `{name}`")),
        Some(other) if other != shape => Some(format!(
            "`{name}` is {} here and {} there",
            show(other),
            show(shape)
        )),
        Some(_) => None,
    });
    let more = || found.keys().find(|name| !due.contains_key(*name));
    other.or_else(|| more().map(|name| format!("only this one has `{name}`")))
}

/// A small message of this kind; `None` if none can be made up.
fn small(of: &'static MessageType, task: &Task) -> Option<Erased> {
    let mut draws = Stream::root(0).child("check", 0).draws();
    let number = |draws: &mut fl_core::Draws| draws.normal() as f32;
    let classes = task.kind.outputs();
    of.sample(&mut SampleShape::new(1, &number, &mut draws).fixed(&[0, 1], classes, 1))
}

/// What a small release would be; `None` if no message of this kind can be made up.
pub(crate) fn release(
    mut mechanism: Box<dyn AnyMechanism>,
    task: &Task,
    cohort: &Cohort,
    votes: Option<VoteSensitivity>,
) -> Option<Result<PrivacyEvent, Problem>> {
    let mut message = small(mechanism.on(), task)?;
    if let Ok(counts) = message.get_mut::<Counts>() {
        // votes of which nothing is known follow from a split of the examples
        counts.set_sensitivity(votes.unwrap_or(VoteSensitivity {
            also_removed: false,
            ..counts.sensitivity()
        }));
    }
    if let Some(range) = mechanism.range(&*message) {
        mechanism.agree(range);
    }
    mechanism.clip(&mut *message).ok()?;
    let mut price = mechanism.price(&*message, cohort);
    // the examples that a sample is drawn from: two may be fewer than it draws
    if let (Err(_), Ok(own)) = (&price, message.get_mut::<Ids>()) {
        own.0 = (0..1 << 20).collect();
        price = mechanism.price(&*message, cohort);
    }
    match price {
        // how many examples there are is not known before data are loaded
        Ok(PrivacyEvent::Sampled {
            replacement,
            public,
            ..
        }) => Some(Ok(PrivacyEvent::Sampled {
            k: 1,
            n: 2,
            public,
            replacement,
        })),
        Ok(event) => Some(Ok(event)),
        Err(error) => match error.downcast_ref() {
            Some(why @ (Problem::Unpriced(_) | Problem::Lacks(_))) => Some(Err(why.clone())),
            _ => None,
        },
    }
}
