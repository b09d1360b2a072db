//! What the process of a library may do: compute, and talk with the program. It reads no files but
//! those that loading a library needs, and writes none; it has no network, begins no programs and
//! no processes, and has no way to other processes.
//!
//! Landlock refuses files, and seccomp refuses every call of the system that is not on a list. A
//! process enters its sandbox before it loads its library, whose initialisers run then, and before
//! it begins a thread.

use anyhow::Context;
use fl_core::Result;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The newest rules that this program knows; an older kernel enforces what it knows of them.
const RULES: ABI = ABI::V6;

/// What the loader of libraries reads, and what numeric libraries ask about the processor.
const READABLE: [&str; 13] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/gnu/store",
    "/nix/store",
    "/etc/ld.so.cache",
    "/dev/urandom",
    "/proc/cpuinfo",
    "/sys/devices/system/cpu",
];

/// What this kernel cannot refuse to a library, if anything.
pub(crate) fn gap() -> Option<&'static str> {
    static GAP: OnceLock<Option<&str>> = OnceLock::new();
    *GAP.get_or_init(|| match (has_landlock(), has_seccomp()) {
        (true, true) => None,
        (false, true) => {
            Some("it has no Landlock, so their processes may read and write your files")
        }
        (true, false) => Some("it has no seccomp, so their processes may begin programs"),
        (false, false) => Some(
            "it has neither Landlock nor seccomp, so their processes may do all that you may do",
        ),
    })
}

fn has_landlock() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let ruleset = ruleset.handle_access(AccessFs::from_all(ABI::V1));
    ruleset.and_then(Ruleset::create).is_ok()
}

fn has_seccomp() -> bool {
    let status = std::fs::read_to_string("/proc/self/status");
    architecture().is_some() && status.is_ok_and(|status| status.contains("\nSeccomp:"))
}

fn architecture() -> Option<TargetArch> {
    std::env::consts::ARCH.try_into().ok()
}

/// From now on this process, which has one thread, does nothing but compute. It may also read
/// `reads`, files or folders with all that is in them.
pub(crate) fn enter(reads: &[PathBuf]) -> Result<()> {
    // both are looked for while this process may still read files
    let (files, calls) = (has_landlock(), has_seccomp());
    if files {
        refuse_files(reads).context("Landlock")?;
    }
    if calls {
        refuse_calls().context("seccomp")?;
    }
    Ok(())
}

fn refuse_files(reads: &[PathBuf]) -> Result<()> {
    let searched = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let searched = split(&searched);
    let readable = READABLE.iter().map(PathBuf::from);
    let readable = readable.chain(searched).chain(reads.iter().cloned());
    let look: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    let status = Ruleset::default()
        .handle_access(AccessFs::from_all(RULES))?
        .handle_access(AccessNet::from_all(RULES))?
        .scope(Scope::from_all(RULES))?
        .create()?
        .add_rules(path_beneath_rules(readable, look))?
        .restrict_self()?;
    anyhow::ensure!(
        status.ruleset != RulesetStatus::NotEnforced,
        "the kernel does not enforce it"
    );
    Ok(())
}

/// The folders that the loader searches, as it divides them.
fn split(folders: &OsString) -> Vec<PathBuf> {
    let all = std::env::split_paths(folders);
    all.filter(|folder| folder != Path::new("")).collect()
}

fn refuse_calls() -> Result<()> {
    let architecture = architecture().context("unknown processor")?;
    let install = |rules, otherwise, what| -> Result<()> {
        let filter = SeccompFilter::new(rules, otherwise, what, architecture)?;
        let program: BpfProgram = filter.try_into()?;
        Ok(apply_filter(&program)?)
    };
    // its flags lie in memory, where no filter sees them: the C library then takes `clone`
    let newer = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    install(newer, SeccompAction::Allow, unknown)?;
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    install(rules()?, refused, SeccompAction::Allow)
}

/// The calls that are allowed, some with certain arguments only.
fn rules() -> Result<BTreeMap<c_long, Vec<SeccompRule>>> {
    use SeccompCmpOp::{Eq, Gt, MaskedEq};
    let is = |at, how, value| SeccompCondition::new(at, SeccompCmpArgLen::Dword, how, value);
    let one_of = |at, values: &[u64]| -> Result<Vec<SeccompRule>> {
        let rule = |value: &u64| Ok(SeccompRule::new(vec![is(at, Eq, *value)?])?);
        values.iter().map(rule).collect()
    };
    // of files that the program has not open too, as it has its output
    let own_file = || -> Result<_> { Ok(vec![SeccompRule::new(vec![is(0, Gt, 2)?])?]) };
    let own = u64::from(std::process::id());
    let thread = libc::CLONE_THREAD as u64;
    let threads = SeccompRule::new(vec![is(0, MaskedEq(thread), thread)?])?;
    let nothing = SeccompCondition::new(2, SeccompCmpArgLen::Qword, Eq, 0)?;
    let copy = SeccompRule::new(vec![is(0, Gt, 2)?, is(1, Eq, COPY)?])?;
    let looks = one_of(1, &LOOKS)?.into_iter().chain([copy]).collect();
    let allowed = ALLOWED.iter().chain(OLDER);
    let mut rules: BTreeMap<_, _> = allowed.map(|call| (*call, Vec::new())).collect();
    rules.extend([
        // threads, and no processes
        (libc::SYS_clone, vec![threads]),
        // signals to itself, and to its group, which is its own
        (libc::SYS_kill, one_of(0, &[0, own])?),
        (libc::SYS_tgkill, one_of(0, &[own])?),
        (libc::SYS_sched_setaffinity, one_of(0, &[0, own])?),
        // limits are read, and not changed
        (libc::SYS_prlimit64, vec![SeccompRule::new(vec![nothing])?]),
        (libc::SYS_prctl, one_of(0, &NAMES)?),
        (libc::SYS_ioctl, one_of(1, &TERMINAL)?),
        (libc::SYS_fcntl, looks),
        (libc::SYS_dup, own_file()?),
        (libc::SYS_dup3, own_file()?),
        (libc::SYS_ftruncate, own_file()?),
        (libc::SYS_lseek, own_file()?),
        (libc::SYS_pwrite64, own_file()?),
        (libc::SYS_pwritev, own_file()?),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_dup2, own_file()?),
    ]);
    Ok(rules)
}

/// What `prctl` may do: name a thread.
const NAMES: [u64; 2] = [libc::PR_SET_NAME as u64, libc::PR_GET_NAME as u64];

/// What `ioctl` may do: ask whether a file is a terminal, and how much can be read.
#[allow(
    clippy::unnecessary_cast,
    reason = "their type depends on the C library"
)]
const TERMINAL: [u64; 3] = [
    libc::TCGETS as u64,
    libc::TIOCGWINSZ as u64,
    libc::FIONREAD as u64,
];

/// What `fcntl` may do besides.
const COPY: u64 = libc::F_DUPFD_CLOEXEC as u64;

/// What `fcntl` may do: look at a file, and keep it from programs that are begun.
const LOOKS: [u64; 4] = [
    libc::F_GETFD as u64,
    libc::F_SETFD as u64,
    libc::F_GETFL as u64,
    libc::F_GET_SEALS as u64,
];

/// The calls that need no look at their arguments. Landlock decides which files are opened.
const ALLOWED: &[c_long] = &[
    // memory
    libc::SYS_brk,
    libc::SYS_get_mempolicy,
    libc::SYS_madvise,
    libc::SYS_mbind,
    libc::SYS_membarrier,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_set_mempolicy,
    // threads and signals of this process
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    // clocks
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_getitimer,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_setitimer,
    libc::SYS_times,
    // files that are open, or that Landlock lets it open
    libc::SYS_close,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pselect6,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_shutdown,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_write,
    libc::SYS_writev,
    // what it is, and where
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// Older forms of the above.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_epoll_wait,
    libc::SYS_getpgrp,
    libc::SYS_getrlimit,
    libc::SYS_lstat,
    libc::SYS_open,
    libc::SYS_pause,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];
