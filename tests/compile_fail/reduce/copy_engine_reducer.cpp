// SPDX-License-Identifier: Apache-2.0
#include <tide/reduce/copy_engine_reducer.hpp>

#if TIDE_CASE == 1  // expect: tide::CopyEngineReducer: the first policy must be a Launch
tide::CopyEngineReducer<tide::Store> subject;
#elif TIDE_CASE == 2  // expect: tide::CopyEngineReducer: the second policy must be an Epilogue
tide::CopyEngineReducer<tide::Burst, tide::Burst> subject;
#else                 // control: policies of the right kind
tide::CopyEngineReducer<tide::Trickle<>, tide::Accumulate> subject;
#endif
