//! [`DataLedger`]: the releases of all runs, by data set.

use crate::chain::{Chain, ChainFiles, Head};
use crate::entry::{Entry, State};
use crate::random_name;
use crate::record::{Limit, Record, Reservation, RunId, Spending};
use crate::rows::{DataId, RowKey};
use crate::total::{MakeAccountant, together};
use anyhow::{Context, bail, ensure};
use fl_core::privacy::{Observer, Protection, Protections, UpperBound, short};
use fl_core::{Result, first_names};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The version of the records.
const VERSION: u32 = 2;

/// The runs on the same rows: those with equal rows, or with one name for them.
#[derive(Clone, Debug)]
pub struct DataSet<'a> {
    /// The names that runs gave it.
    pub names: BTreeSet<&'a str>,
    /// The hashes of its rows.
    pub rows: BTreeSet<&'a str>,
    /// Its runs, in the order of the ledger.
    pub runs: Vec<&'a Entry>,
    /// The runs of the ledger whose public or test rows are rows of its clients, in a text each.
    pub published: Vec<String>,
}

impl DataSet<'_> {
    /// Returns whether these data are of the set.
    fn has(&self, data: &DataId) -> bool {
        let mut runs = self.runs.iter();
        runs.any(|run| data.same_set(&run.reservation.data))
    }

    /// Returns its names in a text.
    pub fn title(&self) -> String {
        let names: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
        names.join(", ")
    }

    /// Returns what all its runs guarantee together, against each observer.
    pub fn together(&self, make: MakeAccountant<'_>) -> Protections {
        let of = |observer| {
            let runs = together(&self.runs, observer, make);
            if self.published.is_empty() {
                return (observer, runs);
            }
            let mut why = match runs {
                Protection::Nothing { nothing, .. } => nothing,
                Protection::Holds(_) => Vec::new(),
            };
            why.extend(self.published.clone());
            (observer, Protection::nothing(why))
        };
        Observer::ALL.into_iter().map(of).collect()
    }
}

/// The joint guarantees before and after a run.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The names of the data set.
    pub data: String,
    /// The number of other runs on it.
    pub others: usize,
    /// Without the run, or with what is reserved for it if it resumes.
    pub before: Protections,
    /// If the run spends all that it may.
    pub after: Protections,
    /// The names of other data sets of whose clients it would publish rows.
    pub publishes: Vec<String>,
    /// Whether the limit forbids it, and why.
    pub refused: Option<String>,
}

/// The releases of all runs that name this ledger, by data set.
pub struct DataLedger {
    chain: Chain,
    id: String,
    limit: Option<Limit>,
    /// Names the key of the row hashes.
    key: String,
    entries: Vec<Entry>,
}

impl DataLedger {
    fn files(path: &Path) -> ChainFiles {
        let mut head = path.as_os_str().to_owned();
        head.push(".head");
        ChainFiles {
            records: path.into(),
            head: PathBuf::from(head),
            secret: [0; 32],
            advice: "What runs have spent is unknown, so no run may use this ledger; restore both files from the newest copy",
        }
    }

    fn key_file(path: &Path) -> PathBuf {
        let mut key = path.as_os_str().to_owned();
        key.push(".key");
        key.into()
    }

    /// Makes a new ledger. The files beside it end in `.head` and `.key`; only their owner may read
    /// them.
    ///
    /// # Errors
    /// If one of the three files exists, or cannot be written.
    pub fn init(path: &Path, limit: Option<Limit>) -> Result<()> {
        let files = Self::files(path);
        for file in [&files.records, &files.head] {
            let there = file.symlink_metadata().is_ok();
            ensure!(
                !there,
                "{} exists; a ledger is never replaced, so take another path",
                file.display()
            );
        }
        let key = Self::key_file(path);
        ensure!(
            key.symlink_metadata().is_err(),
            "{} is the key of a ledger that is lost; restore {} and {} from the newest copy, or take another path: a new ledger here would count what runs have spent as unspent",
            key.display(),
            files.records.display(),
            files.head.display()
        );
        // of two processes one makes it
        let mut options = OpenOptions::new();
        let made = fl_files::open_own(path, options.write(true).create_new(true));
        made.with_context(|| format!("making {}", path.display()))?;
        let name = RowKey::new().and_then(|new| {
            new.write(&key)?;
            Ok(new.name())
        });
        let first = name.and_then(|name| {
            files.begin()?;
            Chain::new(files.clone()).append(&Record::Begun {
                version: VERSION,
                ledger: random_name()?,
                limit,
                key: name,
            })
        });
        first.inspect_err(|_| {
            // it is of no use without its first record
            let _ = std::fs::remove_file(&files.records);
            let _ = std::fs::remove_file(&files.head);
            let _ = std::fs::remove_file(&key);
        })
    }

    /// Reads a ledger.
    ///
    /// # Errors
    /// If there is none, or any byte of it has changed.
    pub fn open(path: &Path) -> Result<Self> {
        let files = Self::files(path);
        let there = |file: &Path| match file.symlink_metadata() {
            Err(error) => error.kind() != ErrorKind::NotFound,
            Ok(_) => true,
        };
        let none = !there(&files.records) && !there(&files.head);
        let key = Self::key_file(path);
        ensure!(
            !none || !there(&key),
            "the ledger {} is lost: its key, {}, is there; put both files of it back",
            path.display(),
            key.display()
        );
        ensure!(
            !none,
            "there is no ledger at {}; restore it if runs have used it, or make one with: fl ledger init {}",
            path.display(),
            path.display()
        );
        let mut ledger = Self {
            chain: Chain::new(files),
            id: String::new(),
            limit: None,
            key: String::new(),
            entries: Vec::new(),
        };
        ledger.read_new()?;
        ensure!(
            !ledger.id.is_empty(),
            "{} has no first record; it was not made by `fl ledger init`",
            path.display()
        );
        Ok(ledger)
    }

    fn read_new(&mut self) -> Result<()> {
        let first = self.chain.head().records + 1;
        let records: Vec<Record> = self.chain.read_new()?;
        (first..)
            .zip(records)
            .try_for_each(|(number, record)| self.apply(number, record))
    }

    /// Returns the key of its row hashes, which lies beside it.
    ///
    /// # Errors
    /// If it is missing, or of another ledger.
    pub fn key(&self) -> Result<RowKey> {
        let path = Self::key_file(self.path());
        let key = RowKey::read(&path)?;
        ensure!(
            self.key == key.name(),
            "{} is not the key of {}: with another key its rows cannot be compared with those of other runs; put the right one back",
            path.display(),
            self.path().display()
        );
        Ok(key)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.chain.files().records
    }

    /// Returns the name that tells it from other ledgers.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the limit of each data set.
    pub fn limit(&self) -> Option<&Limit> {
        self.limit.as_ref()
    }

    /// Returns the number of its records, and their hash.
    pub fn head(&self) -> Head {
        self.chain.head()
    }

    /// Returns all runs, in the order of their first record.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Checks that this ledger has been at `head`.
    ///
    /// # Errors
    /// If its files are an older copy, or of another history.
    pub fn check_contains(&self, head: &Head, known_to: &str) -> Result<()> {
        ensure!(
            self.chain.contains(head),
            "{} has {} records, and {known_to} knows record {} of another history: an older copy was restored, or another file put in its place; restore the newest copy of it and of its head",
            self.path().display(),
            self.head().records,
            head.records
        );
        Ok(())
    }

    fn apply(&mut self, number: u64, record: Record) -> Result<()> {
        let at =
            |entries: &[Entry], id: &RunId| entries.iter().position(|e| e.reservation.id == *id);
        match record {
            Record::Begun {
                version,
                ledger,
                limit,
                key,
            } => {
                ensure!(
                    version == VERSION,
                    "{} has version {version}, and this fl reads version {VERSION}",
                    self.path().display()
                );
                ensure!(self.id.is_empty(), "{} begins twice", self.path().display());
                (self.id, self.limit, self.key) = (ledger, limit, key);
            }
            Record::Reserved(reservation) => {
                // only the first that goes on from a stop draws none of its noise again
                let stop = reservation.continues.map(State::Stopped);
                let stopped = || {
                    let mut all = self.entries.iter();
                    all.position(|e| Some(&e.state) == stop.as_ref())
                };
                match at(&self.entries, &reservation.id).or_else(stopped) {
                    Some(at) => {
                        let entry = &mut self.entries[at];
                        (entry.reservation, entry.state) = (*reservation, State::Open);
                    }
                    None => self.entries.push(Entry::new(*reservation, State::Open)),
                }
            }
            Record::Seen { id, observer, why } => {
                if let Some(at) = at(&self.entries, &id) {
                    let seen = self.entries[at].seen.entry(observer).or_default();
                    seen.insert(why);
                }
            }
            Record::Stopped { id } => {
                if let Some(at) = at(&self.entries, &id) {
                    self.entries[at].state = State::Stopped(number);
                }
            }
            Record::Settled { id, spent } => {
                if let Some(at) = at(&self.entries, &id) {
                    self.entries[at].state = State::Settled(spent);
                }
            }
        }
        Ok(())
    }

    /// Returns the data sets, in the order of their first runs.
    pub fn data_sets(&self) -> Vec<DataSet<'_>> {
        data_sets(&self.entries)
    }

    /// Returns what a run would add to its data set.
    pub fn forecast(&self, reservation: &Reservation, make: MakeAccountant<'_>) -> Forecast {
        let empty = || Observer::ALL.map(|o| (o, together(&[], o, make)));
        let own = |set: &DataSet<'_>| set.has(&reservation.data);
        let sets = self.data_sets();
        // a run may bring two data sets together
        let (mine, others): (Vec<_>, Vec<_>) = sets.into_iter().partition(own);
        let before = DataSet {
            names: BTreeSet::new(),
            rows: BTreeSet::new(),
            published: mine.iter().flat_map(|set| set.published.clone()).collect(),
            runs: mine.into_iter().flat_map(|set| set.runs).collect(),
        };
        let mut with = Self {
            chain: Chain::new(self.chain.files().clone()),
            id: self.id.clone(),
            limit: self.limit.clone(),
            key: self.key.clone(),
            entries: self.entries.clone(),
        };
        // a reservation changes nothing that could fail
        let _ = with.apply(0, Record::Reserved(Box::new(reservation.clone())));
        let sets = with.data_sets();
        let set = sets.iter().find(|set| own(set));
        let after: Protections =
            set.map_or_else(|| empty().into_iter().collect(), |set| set.together(make));
        let runs = before.runs.iter();
        let stop = reservation.continues.map(State::Stopped);
        let own_entry =
            |e: &&&Entry| e.reservation.id == reservation.id || Some(&e.state) == stop.as_ref();
        let other_runs = runs.filter(|e| !own_entry(e)).count();
        let shows = |set: &&DataSet<'_>| {
            let mut runs = set.runs.iter();
            runs.any(|run| reservation.data.publishes(&run.reservation.data))
        };
        let publishes: Vec<String> = others.iter().filter(shows).map(DataSet::title).collect();
        let data = set.map_or_else(String::new, DataSet::title);
        let before = before.together(make);
        Forecast {
            others: other_runs,
            refused: self.refused(&data, (&before, &after), &publishes),
            publishes,
            before,
            after,
            data,
        }
    }

    fn refused(
        &self,
        data: &str,
        (before, after): (&Protections, &Protections),
        publishes: &[String],
    ) -> Option<String> {
        let limit = self.limit.as_ref()?;
        let against = limit.against;
        let ledger = self.path().display();
        if !publishes.is_empty() {
            return Some(format!(
                "its public or test rows are rows of {}, for which the ledger {ledger} has a limit; take other public rows",
                publishes.join(", ")
            ));
        }
        let of = format!(
            "the ledger {ledger} allows an epsilon of {} against {against} over all runs on {data}",
            limit.epsilon
        );
        let guarantee = match after.get(&against)? {
            Protection::Holds(guarantee) => guarantee,
            nothing @ Protection::Nothing { .. } => {
                return Some(format!(
                    "{of}, and with this run nothing could be guaranteed: {}",
                    nothing.to_string().trim_start_matches("nothing: ")
                ));
            }
        };
        if let Some(delta) = limit
            .delta
            .filter(|delta| guarantee.delta > *delta * (1.0 + 1e-9))
        {
            return Some(format!(
                "the ledger {ledger} allows a delta of {} over all runs on {data}, and this run would bring it to {}; set the accountant's `delta`, and use one accountant for all runs; a `budget` that may end the run counts with a delta of its own, so leave it out and set as many rounds as it pays for",
                short(delta),
                short(guarantee.delta)
            ));
        }
        // a sum of prices is rounded
        if guarantee.epsilon <= limit.epsilon * (1.0 + 1e-9) {
            return None;
        }
        let so_far = match before.get(&against) {
            Some(Protection::Holds(guarantee)) => UpperBound(guarantee.epsilon).to_string(),
            _ => "unknown".into(),
        };
        Some(format!(
            "{of}; {so_far} is spent or reserved, and this run may bring it to {} (at delta {}): fewer rounds, more noise, or a `budget` of the run make it smaller",
            UpperBound(guarantee.epsilon),
            short(guarantee.delta)
        ))
    }

    /// Reserves what a run may spend, before its first request. A run that resumes replaces its
    /// reservation. Returns the ledger's head with it.
    ///
    /// # Errors
    /// If the limit does not allow it, or the ledger cannot be read, locked or written; then
    /// nothing is reserved.
    pub fn reserve(&mut self, reservation: Reservation, make: MakeAccountant<'_>) -> Result<Head> {
        let _lock = self.chain.files().lock()?;
        self.read_new()?;
        if self.limit.is_some()
            && let Some(why) = self.forecast(&reservation, make).refused
        {
            bail!("the run was refused before anything was released: {why}");
        }
        self.append(Record::Reserved(Box::new(reservation)))?;
        Ok(self.head())
    }

    /// Records that an observer saw something of a run without a price.
    ///
    /// # Errors
    /// If the ledger cannot be read, locked or written.
    pub fn seen(&mut self, id: &RunId, observer: Observer, why: &str) -> Result<()> {
        self.add(|| Record::Seen {
            id: id.clone(),
            observer,
            why: why.into(),
        })
    }

    /// Records that a run stopped at a checkpoint, after its last release. Returns the number of
    /// the stop.
    ///
    /// # Errors
    /// If the ledger cannot be read, locked or written.
    pub fn stop(&mut self, id: &RunId) -> Result<u64> {
        self.add(|| Record::Stopped { id: id.clone() })?;
        Ok(self.head().records)
    }

    /// Replaces a run's reservation by what it has spent.
    ///
    /// # Errors
    /// If the ledger cannot be read, locked or written; then the reservation stays.
    pub fn settle(&mut self, id: &RunId, spent: Spending) -> Result<()> {
        self.add(|| Record::Settled {
            id: id.clone(),
            spent,
        })
    }

    fn add(&mut self, record: impl FnOnce() -> Record) -> Result<()> {
        let _lock = self.chain.files().lock()?;
        self.read_new()?;
        self.append(record())
    }

    fn append(&mut self, record: Record) -> Result<()> {
        self.chain.append(&record)?;
        self.apply(self.chain.head().records, record)
    }
}

/// Groups runs by name and by rows.
pub fn data_sets(all: &[Entry]) -> Vec<DataSet<'_>> {
    let mut sets: Vec<DataSet<'_>> = Vec::new();
    for run in all {
        let data = &run.reservation.data;
        let mut one = DataSet {
            names: BTreeSet::from([&*data.name]),
            rows: BTreeSet::from([&*data.rows]),
            runs: Vec::new(),
            published: Vec::new(),
        };
        let first = sets.iter().position(|set| set.has(data));
        for set in sets.extract_if(.., |set| set.has(data)) {
            one.names.extend(set.names);
            one.rows.extend(set.rows);
            one.runs.extend(set.runs);
        }
        one.runs.push(run);
        sets.insert(first.unwrap_or(sets.len()), one);
    }
    for set in &mut sets {
        let shows = |run: &&Entry| {
            let open = &run.reservation.data;
            let mut runs = set.runs.iter().map(|run| &run.reservation.data);
            !open.public.is_empty() && runs.any(|own| open.publishes(own))
        };
        let titles = all.iter().filter(shows).map(Entry::title);
        let titles: Vec<String> = titles.collect::<BTreeSet<_>>().into_iter().collect();
        if !titles.is_empty() {
            let of = first_names(&titles, 3);
            set.published = vec![format!("its rows are public or test rows of {of}")];
        }
    }
    sets
}
