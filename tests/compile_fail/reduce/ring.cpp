// SPDX-License-Identifier: Apache-2.0
#include <tide/reduce/ring.hpp>

#if TIDE_CASE == 1  // expect: tide::Ring: Count must be Chunks<N> and Budget Bytes<N>
tide::Ring<int, tide::Bytes<4096>> subject;
#else  // control: a count and a budget
tide::Ring<tide::Chunks<2>, tide::Bytes<4096>> subject;
#endif
