// SPDX-License-Identifier: Apache-2.0
#include <tide/reduce/launch.hpp>

#if TIDE_CASE == 1  // expect: tide::Trickle: Count must be Ctas<N>
tide::Trickle<int> subject;
#elif TIDE_CASE == 2  // expect: tide::Trickle: Count must be Ctas<N>
tide::Trickle<tide::Bytes<8>> subject;
#else                 // control: a number of CTAs
tide::Trickle<tide::Ctas<8>> subject;
#endif
