//! [`Matrix`]: rows and columns of numbers in a slice.

/// A matrix among `values`: those from its first number on, and the steps from one row and column
/// to the next.
#[derive(Clone, Copy)]
pub struct Strided<T> {
    /// The numbers.
    pub values: T,
    /// Step from one row to the next.
    pub by_row: usize,
    /// Step from one column to the next.
    pub by_column: usize,
}

/// A matrix in a slice.
pub type Matrix<'a> = Strided<&'a [f32]>;

/// Returns a row-major matrix in a slice.
pub fn matrix(values: &[f32], by_row: usize) -> Matrix<'_> {
    Strided::new(values, by_row)
}

impl<T> Strided<T> {
    /// Returns a row-major matrix with `by_row` numbers from one row to the next.
    pub fn new(values: T, by_row: usize) -> Self {
        Self {
            values,
            by_row,
            by_column: 1,
        }
    }

    /// Swaps rows and columns.
    pub fn transposed(self) -> Self {
        Self {
            by_row: self.by_column,
            by_column: self.by_row,
            ..self
        }
    }

    /// Returns the steps, row first.
    pub fn steps(&self) -> [usize; 2] {
        [self.by_row, self.by_column]
    }
}

impl Matrix<'_> {
    pub(super) fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0
            || columns == 0
            || (rows - 1) * self.by_row + (columns - 1) * self.by_column < self.values.len()
    }

    #[inline(always)]
    pub(super) fn at(&self, row: usize, column: usize) -> f32 {
        self.values[row * self.by_row + column * self.by_column]
    }
}
