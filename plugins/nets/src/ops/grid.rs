//! [`Grid`]: the layout of a convolution's numbers.
//!
//! Images are laid out on a grid on which every tap of the kernel is a *shift*. Rows follow one
//! another with the padding between them (the zeros that end one row begin the next). A stride of
//! `s` splits the grid into `s x s` phases, of which a tap reads one. Output, input gradient and
//! weight gradient are then sums and dot products of shifted rows, see [`super::shifted`]. Columns of
//! the grid that are no output are computed and dropped: 1/(width + 1) of the work for a padded 3x3
//! kernel.

use super::shifted::Lines;
use crate::simd::{copy_rows, round_up, vectorised};

/// The shape of a convolution: `channels x height x width` in, `out` channels of `kernel x kernel`
/// taps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Channels in.
    pub channels: usize,
    /// Rows in.
    pub height: usize,
    /// Columns in.
    pub width: usize,
    /// Channels out.
    pub out: usize,
    /// Rows and columns of the kernel.
    pub kernel: usize,
    /// Step in rows and columns between two outputs.
    pub stride: usize,
    /// Rows and columns of zeros around the input; less than `kernel`.
    pub pad: usize,
}

impl Shape {
    /// Returns the rows out.
    pub fn out_height(&self) -> usize {
        (self.height + 2 * self.pad - self.kernel) / self.stride + 1
    }

    /// Returns the columns out.
    pub fn out_width(&self) -> usize {
        (self.width + 2 * self.pad - self.kernel) / self.stride + 1
    }

    /// Returns the weights of one output channel.
    pub fn taps(&self) -> usize {
        self.channels * self.kernel * self.kernel
    }
}

/// Inputs of one phase.
pub struct Block {
    /// The phase.
    pub phase: usize,
    /// Where the first lies on the phase's plane.
    pub place: usize,
    /// Where the first lies in a channel of a sample.
    pub start: usize,
    /// Rows, columns, and the step from one column to the next in the sample.
    pub size: [usize; 3],
    /// Steps from one row to the next, on the plane and in the sample.
    pub steps: [usize; 2],
}

/// The layout of a convolution.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// The shape of the convolution.
    pub shape: Shape,
    /// Phases in each direction.
    pub phases: usize,
    /// The largest shift of a tap within a phase, in rows and columns.
    pub reach: usize,
    /// Step from one row to the next.
    pub ld: usize,
}

impl Grid {
    /// Returns the grid for a convolution.
    pub fn new(shape: &Shape) -> Self {
        let reach = (shape.kernel - 1) / shape.stride;
        let ld = if shape.stride == 1 {
            shape.width + shape.pad
        } else {
            shape.out_width() + reach
        };
        Self {
            shape: *shape,
            phases: shape.stride.min(shape.kernel),
            reach,
            ld,
        }
    }

    /// Returns the rows of one channel of output.
    pub fn lines(&self) -> Lines {
        Lines {
            count: self.shape.out_height(),
            width: self.shape.out_width(),
            step: self.ld,
        }
    }

    /// Returns the numbers from the first to the last output, dropped columns included.
    pub fn outputs(&self) -> usize {
        self.lines().span()
    }

    /// Returns the size of one channel of output.
    pub fn run(&self) -> usize {
        round_up(self.outputs())
    }

    /// Returns the position of row `y` and column `x` of a padded image, or of a kernel, within
    /// their phase.
    pub fn shift(&self, y: usize, x: usize) -> usize {
        (y / self.shape.stride) * self.ld + x / self.shape.stride
    }

    /// Returns the size of one phase of one channel of input.
    pub fn plane(&self) -> usize {
        round_up(self.reach * self.ld + self.reach + self.run())
    }

    /// Returns the size of one input sample: phase by phase, channel by channel.
    pub fn input_len(&self) -> usize {
        self.phases * self.phases * self.shape.channels * self.plane()
    }

    /// Returns the phase of row `y` and column `x`.
    pub fn phase(&self, y: usize, x: usize) -> usize {
        (y % self.shape.stride) * self.phases + x % self.shape.stride
    }

    /// Returns where each tap starts to read an input sample: channel by channel, kernel row by
    /// kernel row.
    pub fn offsets(&self) -> Vec<usize> {
        let Shape {
            channels, kernel, ..
        } = self.shape;
        let one = |c: usize, tap: usize| {
            let (y, x) = (tap / kernel, tap % kernel);
            (self.phase(y, x) * channels + c) * self.plane() + self.shift(y, x)
        };
        (0..channels)
            .flat_map(|c| (0..kernel * kernel).map(move |tap| one(c, tap)))
            .collect()
    }

    /// Returns the blocks of a channel of input that any output depends on: one for each phase.
    pub fn blocks(&self) -> impl Iterator<Item = Block> + use<> {
        let Shape {
            height,
            width,
            stride,
            pad,
            ..
        } = self.shape;
        // first input of a residue, and the number of them that lie before the end of the outputs
        let along = move |size: usize, end: usize, residue: usize| {
            let first = (residue + stride - pad % stride) % stride;
            let last = end.saturating_sub((first + pad) / stride);
            (first, size.saturating_sub(first).div_ceil(stride).min(last))
        };
        let ends = [self.shape.out_height(), self.shape.out_width()].map(|n| n + self.reach);
        let grid = *self;
        let blocks = (0..self.phases * self.phases).map(move |phase| {
            let (y, rows) = along(height, ends[0], phase / grid.phases);
            let (x, columns) = along(width, ends[1], phase % grid.phases);
            // rows without a gap are one row
            let size = if columns == grid.ld && columns == width && rows > 0 {
                [1, rows * columns, 1]
            } else {
                [rows, columns, stride]
            };
            Block {
                phase,
                place: grid.shift(y + pad, x + pad),
                start: y * width + x,
                size,
                steps: [grid.ld, stride * width],
            }
        });
        blocks.filter(|block| block.size[0] * block.size[1] > 0)
    }

    /// Lays out one sample. Leaves the padding, which is 0 from the start.
    pub fn place_input(&self, sample: &[f32], out: &mut [f32]) {
        let Shape {
            channels,
            height,
            width,
            ..
        } = self.shape;
        let plane = self.plane();
        for block in self.blocks() {
            vectorised(
                #[inline(always)]
                || {
                    for c in 0..channels {
                        let to = &mut out[(block.phase * channels + c) * plane + block.place..];
                        let from = &sample[c * height * width + block.start..];
                        copy_rows(to, from, block.size, block.steps);
                    }
                },
            );
        }
    }

    /// Returns the zeros before the first number of an output gradient.
    pub fn lead(&self) -> usize {
        self.reach * self.ld + self.reach
    }

    /// Returns the first position of an input gradient on a plane, and the number of positions.
    pub fn input_span(&self) -> (usize, usize) {
        let Shape {
            height,
            width,
            stride,
            pad,
            ..
        } = self.shape;
        let first = self.shift(pad, pad);
        let last_y = ((height + pad - 1) / stride).min(self.shape.out_height() + self.reach - 1);
        let last_x = ((width + pad - 1) / stride).min(self.shape.out_width() + self.reach - 1);
        (first, last_y * self.ld + last_x + 1 - first)
    }

    /// Returns the size of one channel of output gradient with the zeros around it.
    pub fn slope_plane(&self) -> usize {
        let (first, count) = self.input_span();
        round_up(self.lead() + self.run().max(first + round_up(count)))
    }

    /// Returns the size of the output gradient of one sample.
    pub fn slope_len(&self) -> usize {
        self.shape.out * self.slope_plane()
    }
}
