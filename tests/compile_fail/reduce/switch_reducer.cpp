// SPDX-License-Identifier: Apache-2.0
#include <tide/reduce/switch_reducer.hpp>

#if TIDE_CASE == 1  // expect: tide::SwitchReducer: the first policy must be a Launch
tide::SwitchReducer<tide::Store> subject;
#elif TIDE_CASE == 2  // expect: tide::SwitchReducer: the second policy must be an Epilogue
tide::SwitchReducer<tide::Burst, tide::Burst> subject;
#else                 // control: policies of the right kind
tide::SwitchReducer<tide::Trickle<>, tide::Accumulate> subject;
#endif
