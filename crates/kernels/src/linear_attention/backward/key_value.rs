//! The gradients of keys and values: backwards, with the state of queries and gradients.

use std::ops::Range;

use pulp::Simd;

use super::super::tiles::{
    Accumulator, Lhs, Panels, Triangle, contiguous, multiply, pack, pack_transposed,
    transpose_state, write_rows,
};
use super::super::{CHUNK, Chunk, HeadRows};
use super::LinearBackwardTask;
use super::buffers::Buffers;
use crate::microkernel::Init;

impl LinearBackwardTask<'_> {
    /// The gradients of keys and values.
    #[inline(always)]
    pub(super) fn key_value_gradients<S: Simd>(&self, simd: S, buffers: &mut Buffers) {
        buffers.state.fill(0.0);
        for index in (0..self.schedule.chunk_count()).rev() {
            let chunk = self.schedule.chunk(index);
            self.process_key_chunk(simd, &chunk, buffers);
        }
        let prefix = self.schedule.prefix();
        let mut first = prefix.start;
        while first < prefix.end {
            let keys = first..prefix.end.min(first + CHUNK);
            first = keys.end;
            let chunk = Chunk {
                queries: 0..0,
                keys,
                shift: 0,
            };
            self.process_key_chunk(simd, &chunk, buffers);
        }
        let unpadded = &self.schedule.unpadded;
        for key in (0..unpadded.start).chain(unpadded.end..self.schedule.keys) {
            // SAFETY: the key exists, and no other task has its head.
            unsafe {
                self.out
                    .key
                    .row(self.batch, self.key_value_head, key)
                    .fill(0.0);
                self.out
                    .value
                    .row(self.batch, self.key_value_head, key)
                    .fill(0.0);
            }
        }
    }

    /// Writes the gradients of a chunk's keys and values, then adds its queries to the state.
    #[inline(always)]
    fn process_key_chunk<S: Simd>(&self, simd: S, chunk: &Chunk, buffers: &mut Buffers) {
        let (features, width) = (self.shape.head_width, self.shape.value_width);
        let keys = chunk.keys.clone();
        self.append_ones(keys.clone(), buffers.values);
        if !keys.is_empty() {
            self.add_later_queries(simd, keys.clone(), buffers);
        }
        let view = self.key.view(keys.clone());
        // SAFETY: the view checks that all rows lie in their slice.
        unsafe { pack_transposed(simd, view, keys.len(), features, buffers.key_columns) };
        self.pack_values(simd, keys.len(), buffers.values, buffers.value_columns);
        if !chunk.queries.is_empty() {
            for head in self.heads() {
                self.process_queries(simd, chunk, head, buffers);
            }
        }
        let (batch, head) = (self.batch, self.key_value_head);
        let dkeys = Accumulator::rows::<S>(buffers.feature_rows, features);
        let dvalues = Accumulator::rows::<S>(buffers.value_rows, width);
        // SAFETY: the keys exist, and no other task has their head.
        unsafe {
            write_rows(self.out.key, batch, head, keys.clone(), &dkeys);
            write_rows(self.out.value, batch, head, keys, &dvalues);
        }
    }

    /// Adds a head's queries of a chunk to the gradients of the chunk's keys and values, which are packed, and to the state.
    #[inline(always)]
    fn process_queries<S: Simd>(&self, simd: S, chunk: &Chunk, head: usize, buffers: &mut Buffers) {
        let (features, width) = (self.shape.head_width, self.shape.value_width);
        let extended_width = width + 1;
        let (queries, triangle) = (chunk.queries.clone(), Triangle::of(chunk));
        self.extended_gradients(simd, head, queries.clone(), buffers.output_gradients);
        let query = HeadRows::new(self.query, self.batch, head, features).view(queries.clone());
        // SAFETY: the view checks that all rows lie in their slice.
        let query_panels = unsafe { pack(simd, query, queries.len(), features, buffers.features) };
        if !chunk.keys.is_empty() {
            let key_columns = Panels {
                data: buffers.key_columns,
                depth: features,
            };
            let value_columns = Panels {
                data: buffers.value_columns,
                depth: extended_width,
            };
            let output_gradients = contiguous(buffers.output_gradients, extended_width);
            let (weights, weight_gradients) = buffers
                .triangles
                .split_at_mut(CHUNK * Triangle::stride::<S>());
            // SAFETY: as above, and these extended rows were just written.
            let gradient_panels = unsafe {
                triangle.scores(simd, Lhs::rows(query), key_columns, weights);
                let lhs = Lhs::rows(output_gradients);
                triangle.scores(simd, lhs, value_columns, weight_gradients);
                let rows = queries.len();
                pack(simd, output_gradients, rows, width, buffers.gradient_panels)
            };
            let mut dvalues = Accumulator::rows::<S>(buffers.value_rows, width);
            triangle.accumulate_transposed(simd, weights, gradient_panels, width, &mut dvalues);
            let mut dkeys = Accumulator::rows::<S>(buffers.feature_rows, features);
            triangle.accumulate_transposed(
                simd,
                weight_gradients,
                query_panels,
                features,
                &mut dkeys,
            );
        }
        self.update_state(
            simd,
            buffers.output_gradients,
            query_panels,
            buffers.lhs,
            buffers.state,
        );
    }

    /// The gradients of a chunk's keys and values from all later queries, in the state. The extended rows are in `values`.
    #[inline(always)]
    fn add_later_queries<S: Simd>(&self, simd: S, keys: Range<usize>, buffers: &mut Buffers) {
        let (features, width) = (self.shape.head_width, self.shape.value_width);
        let extended_width = width + 1;
        transpose_state::<S>(
            simd,
            buffers.state,
            features,
            width,
            buffers.transposed_state,
        );
        let state = Panels {
            data: buffers.state,
            depth: extended_width,
        };
        let transposed_state = Panels {
            data: buffers.transposed_state,
            depth: features,
        };
        let mut dkeys = Accumulator::rows::<S>(buffers.feature_rows, features);
        let mut dvalues = Accumulator::rows::<S>(buffers.value_rows, width);
        // SAFETY: the extended rows were written by the caller, and the view checks that all keys lie in their slice.
        unsafe {
            let values = Lhs::rows(contiguous(buffers.values, extended_width));
            let size = [keys.len(), features];
            multiply(simd, size, values, state, &mut dkeys, Init::Zero);
            let lhs = Lhs::rows(self.key.view(keys.clone()));
            let size = [keys.len(), width];
            multiply(simd, size, lhs, transposed_state, &mut dvalues, Init::Zero);
        }
    }
}
