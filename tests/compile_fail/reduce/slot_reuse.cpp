// SPDX-License-Identifier: Apache-2.0
#include <tide/reduce/slot_reuse.hpp>

#if TIDE_CASE == 1  // expect: tide::SlotReuse: Budget must be Bytes<N> and Count Chunks<N>
tide::SlotReuseWithin<tide::Chunks<4>, tide::Bytes<4096>> subject;
#else  // control: a budget and a count
tide::SlotReuseWithin<tide::Bytes<4096>, tide::Chunks<4>> subject;
#endif
