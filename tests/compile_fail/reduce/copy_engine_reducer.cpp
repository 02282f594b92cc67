// SPDX-License-Identifier: Apache-2.0
#include <tide/reduce/copy_engine_reducer.hpp>

struct NoCtas {
  static constexpr tide::index_t ctas = 0;
};
struct Unfinished {
  static constexpr tide::Finish finish = tide::Finish::partial;
};

#if TIDE_CASE == 1  // expect: tide::CopyEngineReducer: the first policy must be a Launch
tide::CopyEngineReducer<tide::Store> subject;
#elif TIDE_CASE == 2  // expect: tide::CopyEngineReducer: the second policy must be an Epilogue
tide::CopyEngineReducer<tide::Burst, tide::Burst> subject;
#elif TIDE_CASE == 3  // expect: tide::CopyEngineReducer: the first policy must be a Launch
tide::CopyEngineReducer<NoCtas> subject;
#elif TIDE_CASE == 4  // expect: tide::CopyEngineReducer: the second policy must be an Epilogue
tide::CopyEngineReducer<tide::Burst, Unfinished> subject;
#else                 // control: policies of the right kind
tide::CopyEngineReducer<tide::Trickle<>, tide::Accumulate> subject;
#endif
