// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <tide/plan/signal_words.hpp>

#include <set>

using namespace tide;

TEST_CASE("SignalWords: every kind and index has a word of its own, and the word tells both") {
  for (const index_t ranks : {1, 2, 5, 64}) {
    const SignalWords words{ranks};
    std::set<index_t> seen;
    for (const WordKind kind :
         {WordKind::ready, WordKind::arrived, WordKind::credit, WordKind::event, WordKind::landed}) {
      const index_t count = kind == WordKind::event ? ranks + 4 : ranks;
      for (index_t i = 0; i < count; ++i) {
        const index_t word = words.word(kind, i);
        CHECK(seen.insert(word).second);
        CHECK(words.kind(word) == kind);
        CHECK(words.index(word) == i);
        CHECK(word < words.count());
      }
    }
    CHECK(words.bytes() == 8 * words.count());
  }
}

TEST_CASE("SignalWords: a word is described by its meaning") {
  const SignalWords words{4};
  CHECK(words.describe(words.word(WordKind::arrived, 3)) == "arrived[3]");
  CHECK(words.describe(words.word(WordKind::event, 0)) == "event[0]");
}
