// SPDX-License-Identifier: Apache-2.0
#include <tide/reduce/ring.hpp>

#if TIDE_CASE == 1  // expect: tide::Ring: Count must be Chunks<N> and Budget Bytes<N>
tide::Ring<int, tide::Bytes<4096>> subject;
#elif TIDE_CASE == 2  // expect: tide::Ring: Count must be Chunks<N> and Budget Bytes<N>
tide::Ring<tide::Bytes<4>, tide::Chunks<255>> subject;
#else                 // control: a count and a budget
tide::Ring<tide::Chunks<2>, tide::Bytes<4096>> subject;
#endif
