//! What the interpreter runs and what it refuses, with kernels that are written by hand.

use fake_cuda::memory::Memory;
use fake_cuda::order::{Moment, Order};
use fake_cuda::ptx::{self, Kernel};
use fake_cuda::run::Launch;

/// `to[i] = from[i] * 2 + 1` for `i < n`; the body can be changed.
const DOUBLE: &str = r"
.version 8.1
.target sm_70
.address_size 64
.visible .entry double_it(
    .param .u32 n,
    .param .u64 from,
    .param .u64 to
)
{
    .reg .pred %p<2>;
    .reg .f32 %f<4>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<8>;
    ld.param.u32 %r1, [n];
    ld.param.u64 %rd1, [from];
    ld.param.u64 %rd2, [to];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.s32 %p1, %r5, %r1;
    @%p1 bra $L__end;
    mul.wide.s32 %rd3, %r5, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.f32 %f1, [%rd4];
    fma.rn.f32 %f2, %f1, 0f40000000, 0f3F800000;
    add.s64 %rd5, %rd2, %rd3;
    st.global.f32 [%rd5], %f2;
$L__end:
    ret;
}
";

/// Each thread of a block of 64 writes its number to shared memory and reads that of thread
/// `63 - i`.
const TURN: &str = r"
.visible .entry turn(
    .param .u64 to
)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    .shared .align 4 .b8 room[256];
    ld.param.u64 %rd1, [to];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, room;
    add.s32 %r4, %r3, %r2;
    st.shared.u32 [%r4], %r1;
    bar.sync 0;
    sub.s32 %r5, %r3, %r2;
    ld.shared.u32 %r6, [%r5+252];
    mul.wide.s32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r6;
    ret;
}
";

fn kernel(text: &str) -> Kernel {
    ptx::read(text).unwrap().remove(0)
}

fn launch(blocks: u32, threads: u32, shuffle: u64) -> Launch {
    Launch {
        grid: [blocks, 1, 1],
        block: [threads, 1, 1],
        number: 1,
        shuffle,
        moment: Moment::default(),
    }
}

/// `DOUBLE`, changed, over `n` of 100 numbers in blocks of 32; what comes out, or the refusal.
fn double(text: &str, n: u32, shuffle: u64) -> Result<Vec<u32>, String> {
    let memory = Memory::default();
    let values: Vec<u32> = (0..100).map(|i| (i as f32).to_bits()).collect();
    let (from, to) = (
        memory.allocate(400, &Moment::default()),
        memory.allocate(400, &Moment::default()),
    );
    memory.write(from, &values, &Moment::default())?;
    let mut parameters = u64::from(n).to_le_bytes().to_vec();
    parameters.extend(from.to_le_bytes());
    parameters.extend(to.to_le_bytes());
    let kernel = ptx::read(text)?.remove(0);
    kernel.run(&launch(4, 32, shuffle), &parameters, &memory)?;
    let mut out = vec![0; 100];
    memory.read(to, &mut out, &Moment::default())?;
    Ok(out)
}

fn turn(text: &str, threads: u32, shuffle: u64) -> Result<Vec<u32>, String> {
    let memory = Memory::default();
    let to = memory.allocate(256, &Moment::default());
    kernel(text).run(&launch(1, threads, shuffle), &to.to_le_bytes(), &memory)?;
    let mut out = vec![0; 64];
    memory.read(to, &mut out, &Moment::default())?;
    Ok(out)
}

/// The text of the refusal.
fn refused(result: Result<Vec<u32>, String>, wanted: &str) {
    let why = result.unwrap_err();
    assert!(why.contains(wanted), "{why}");
}

#[test]
fn a_kernel_runs_in_any_order_of_blocks() {
    let wanted: Vec<u32> = (0..100).map(|i| (2.0 * i as f32 + 1.0).to_bits()).collect();
    for seed in [0, 1, 2, 77] {
        assert_eq!(double(DOUBLE, 100, seed).unwrap(), wanted);
        let turned: Vec<u32> = (0..64).rev().collect();
        assert_eq!(turn(TURN, 64, seed).unwrap(), turned);
    }
}

#[test]
fn arithmetic_that_a_card_may_change_is_refused_by_the_kernels_name() {
    let with = |fma: &str| double(&DOUBLE.replace("fma.rn.f32", fma), 100, 0);
    refused(
        with("fma.rn.ftz.f32"),
        "kernel `double_it`: arithmetic that is not exact",
    );
    refused(with("fma.rz.f32"), "may be contracted or rounded otherwise");
    refused(with("add.f32"), "may be contracted or rounded otherwise");
    refused(with("ex2.approx.f32"), "arithmetic that is not exact");
    refused(with("max.f32"), "unknown instruction");
    let atomic = DOUBLE.replace("st.global.f32", "red.global.add.f32");
    refused(
        double(&atomic, 100, 0),
        "kernel `double_it`: an atomic instruction",
    );
    let atomic = DOUBLE.replace("ld.global.f32 %f1", "atom.global.add.f32 %f1");
    refused(double(&atomic, 100, 0), "an atomic instruction");
}

#[test]
fn an_access_outside_the_buffers_is_refused() {
    // thread 100 writes behind the end
    let text = DOUBLE.replace("setp.ge.s32", "setp.gt.s32");
    refused(
        double(&text, 100, 0),
        "kernel `double_it`: an access outside the buffers",
    );
    let text = DOUBLE.replace("[%rd4]", "[%rd4+-4]");
    refused(double(&text, 100, 0), "an access outside the buffers");
    refused(
        double(&DOUBLE.replace("[%rd4]", "[%rd4+2]"), 9, 0),
        "no multiple of 4",
    );
    // a buffer that is live, and was not given to the launch
    let memory = Memory::default();
    let (mine, other) = (
        memory.allocate(256, &Moment::default()),
        memory.allocate(256, &Moment::default()),
    );
    memory.write(other, &[7; 64], &Moment::default()).unwrap();
    let far = other - mine;
    let text = TURN.replace("[%rd3]", &format!("[%rd3+{far}]"));
    let run = kernel(&text).run(&launch(1, 64, 0), &mine.to_le_bytes(), &memory);
    assert!(
        run.unwrap_err()
            .starts_with("kernel `turn`: an access outside the buffers")
    );
    let text = TURN.replace("[%r5+252]", "[%r5+256]");
    refused(
        turn(&text, 64, 0),
        "kernel `turn`: an access outside shared memory",
    );
}

#[test]
fn a_read_of_what_no_one_wrote_is_refused() {
    let text = DOUBLE.replace("add.s64 %rd4, %rd1", "add.s64 %rd4, %rd2");
    refused(
        double(&text, 100, 0),
        "kernel `double_it`: reads a word that no one wrote",
    );
    // the copy to the host reads all 100 numbers
    refused(double(DOUBLE, 99, 0), "a copy to the host reads word 99");
    // 48 threads: some read what the others would have written
    refused(
        turn(TURN, 48, 0),
        "kernel `turn`: reads a word of shared memory that no one wrote",
    );
}

#[test]
fn a_missing_barrier_is_refused_whatever_the_order() {
    for seed in [0, 1, 5] {
        let text = TURN.replace("bar.sync 0;", "");
        let why = turn(&text, 64, seed).unwrap_err();
        let race = "two threads at one word of shared memory without a barrier";
        assert!(why.contains(race) || why.contains("no one wrote"), "{why}");
    }
    // within one warp too: its threads may run apart
    let text = TURN
        .replace("bar.sync 0;", "")
        .replace("[%r5+252]", "[%r5+124]");
    refused(
        turn(&text, 32, 0),
        "two threads at one word of shared memory",
    );
}

#[test]
fn a_barrier_that_only_some_threads_reach_is_refused() {
    let text = TURN.replace(".reg .b32", ".reg .pred %p<2>;\n    .reg .b32");
    let some = |test: &str| text.replace("bar.sync 0;", &format!("{test}\n    @%p1 bar.sync 0;"));
    refused(
        turn(&some("setp.lt.s32 %p1, %r1, 40;"), 64, 0),
        "kernel `turn`: a barrier that not all threads of a block reach",
    );
    // a whole warp does not wait, and ends
    let text = some("setp.lt.s32 %p1, %r1, 32;\n    @!%p1 bra $L__end;");
    let text = text.replace("ret;", "$L__end:\n    ret;");
    refused(
        turn(&text, 64, 0),
        "a barrier that not all threads of a block reach",
    );
}

#[test]
fn blocks_that_meet_at_one_word_are_refused() {
    // every block writes the first 32 numbers
    let text = DOUBLE.replace("mad.lo.s32 %r5, %r2, %r3, %r4", "mov.u32 %r5, %r4");
    refused(
        double(&text, 100, 0),
        "writes a word that another block of this launch wrote",
    );
    // block 1 reads what block 0 has written, or the other way round
    let text = DOUBLE
        .replace("ld.param.u64 %rd2, [to]", "ld.param.u64 %rd2, [from]")
        .replace("[%rd5]", "[%rd5+128]")
        .replace("setp.ge.s32 %p1, %r5, %r1", "setp.ge.s32 %p1, %r5, 64");
    refused(
        double(&text, 100, 0),
        "reads a word that another block of this launch wrote",
    );
}

#[test]
fn what_is_no_ptx_is_an_error_that_names_the_line() {
    for (from, to, wanted) in [
        ("ret;", "brx.idx %r1, table;", "unknown operand `table`"),
        (
            "bra $L__end",
            "bra $L__none",
            "no such label: `@%p1 bra $L__none`",
        ),
        ("[n]", "[m]", "no such parameter"),
        (".param .u32 n", ".param .texref n", "unknown parameter"),
        (".reg .f32", ".reg .f16", "unknown register"),
        ("\n}", "", "without an end"),
    ] {
        let why = ptx::read(&DOUBLE.replace(from, to)).unwrap_err();
        assert!(why.contains(wanted), "{from} -> {to}: {why}");
    }
    let huge = kernel(DOUBLE).run(&launch(1, 2048, 0), &[0; 24], &Memory::default());
    assert!(huge.unwrap_err().contains("cannot launch"));
}

#[test]
fn streams_that_meet_at_a_buffer_without_an_event_are_refused() {
    let (memory, order, event) = (Memory::default(), Order::default(), 100);
    let (a, b) = (order.handle(), order.handle());
    let buffer = memory.allocate(256, &order.work(a));
    let turn = |stream: u64| {
        let mut launch = launch(1, 64, 0);
        launch.moment = order.work(stream);
        kernel(TURN).run(&launch, &buffer.to_le_bytes(), &memory)
    };
    let unordered = |result: Result<(), String>, wanted: &str| {
        let why = result.unwrap_err();
        assert!(
            why.contains(wanted) && why.ends_with("without an event between them"),
            "{why}"
        );
    };
    turn(a).unwrap();
    // `b` does not wait for `a`
    let mut out = [0; 64];
    unordered(
        memory.read(buffer, &mut out, &order.work(b)),
        &format!("stream {b} reads a buffer that stream {a} writes"),
    );
    unordered(
        turn(b).map(|_| ()),
        &format!("kernel `turn`: stream {b} writes a buffer that stream {a} writes"),
    );
    order.record(event, a);
    unordered(turn(b).map(|_| ()), "kernel `turn`: ");
    order.wait_for(b, event);
    memory.read(buffer, &mut out, &order.work(b)).unwrap();
    // `a` must not write what `b` still reads, nor free it, until the host has waited for `b`
    unordered(
        turn(a).map(|_| ()),
        &format!("stream {a} writes a buffer that stream {b} reads"),
    );
    order.wait(b);
    turn(a).unwrap();
    // an event that was recorded before the work does not help
    order.wait_for(b, event);
    unordered(
        memory.free(buffer, &order.work(b)),
        &format!("stream {b} writes a buffer that stream {a} writes"),
    );
}
