//! A CUDA driver without a GPU, for tests.
//!
//! The library has the driver's table of functions, as `libcuda.so.1` has it. A launch reads the
//! kernel's PTX and runs it on the CPU: 32 threads of a warp in lockstep, with barriers and shared
//! memory. The interpreter refuses a kernel, by its name, when its numbers could depend on the
//! card:
//!
//! * an atomic instruction, and arithmetic that is approximate, flushes small numbers, or that the
//!   driver may contract (`add.f32` without `.rn`): the module does not load;
//! * a read of memory that no one wrote, or an access outside the buffers given to the launch;
//! * two threads of a block at one word of shared memory without a barrier between them;
//! * a read of a word that another block of the same launch wrote;
//! * a barrier that not all threads of a block reach;
//! * work of a stream that uses what another stream writes, without an event or a wait between them.
//!
//! `FAKE_CUDA_SHUFFLE=n` runs blocks and warps in another order for each `n`, as a card does.
//! `FAKE_CUDA_COUNTS=FILE` appends a line for each launch: kernel, blocks, instructions, words read
//! and written, bytes of buffers. `FAKE_CUDA_MEMORY_ENDS=n` leaves no memory after `n` launches.

pub mod driver;
pub mod memory;
pub mod order;
pub mod ptx;
pub mod run;
