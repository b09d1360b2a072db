//! [`Matrix`]: rows and columns of numbers in a slice.

/// A matrix in a slice.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub values: &'a [f32],
    pub by_row: usize,
    pub by_column: usize,
}

/// Returns a row-major matrix with `by_row` numbers from one row to the next.
pub fn matrix(values: &[f32], by_row: usize) -> Matrix<'_> {
    Matrix {
        values,
        by_row,
        by_column: 1,
    }
}

impl Matrix<'_> {
    pub fn transposed(self) -> Self {
        Self {
            by_row: self.by_column,
            by_column: self.by_row,
            ..self
        }
    }

    pub fn holds(&self, rows: usize, columns: usize) -> bool {
        rows == 0
            || columns == 0
            || (rows - 1) * self.by_row + (columns - 1) * self.by_column < self.values.len()
    }

    pub fn steps(&self) -> [usize; 2] {
        [self.by_row, self.by_column]
    }

    #[inline(always)]
    pub fn at(&self, row: usize, column: usize) -> f32 {
        self.values[row * self.by_row + column * self.by_column]
    }
}
