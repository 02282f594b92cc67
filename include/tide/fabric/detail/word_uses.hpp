// SPDX-License-Identifier: Apache-2.0
//
// Whether ranks tell each other what they wait for. Fingerprints cover what all ranks share; plans differ by rank, and
// a transport of the user's may write a rank that waits for three puts beside one that makes two. Ranks exchange how
// each word is used before the first run: a hang in the middle of a step says less.

#pragma once

#include <tide/core/text.hpp>      // text
#include <tide/fabric/fabric.hpp>  // PlanVariant

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

namespace tide::detail {

// What a rank does with a word in a run, of its own or of another rank. Ranks send each other these.
struct WordUse {
  enum Kind : std::int32_t { raises_by_puts, raises, waits };

  std::int32_t program = 0;
  std::int32_t owner = 0;  // the rank whose word it is
  std::int32_t word = 0;
  Kind kind = raises;
  std::int32_t rank = 0;     // who does it
  std::int32_t per_run = 0;  // how far it grows in a run
  std::int64_t highest = 0;  // the largest value, counted from the start of the run

  [[nodiscard]] friend auto operator<=>(const WordUse&, const WordUse&) = default;
};
static_assert(sizeof(WordUse) == 32 && std::is_trivially_copyable_v<WordUse>);

// What a plan says of words that ranks share, one entry for each word and kind.
// @pre a word grows by one number in a run, wherever the plan says so
[[nodiscard]] inline std::vector<WordUse> word_uses(const PlanVariant& variant, std::int32_t program) {
  const SignalWords words = variant.collective.words();
  std::vector<WordUse> uses;
  for (const Op& op : variant.plan.ops) {
    const bool is_wait = op.kind == OpKind::wait;
    if (!is_wait && !op.raises()) continue;
    const Op::Raise use = is_wait ? Op::Raise{op.word(), op.value(), op.per_run()} : op.raise();
    if (words.kind(use.word) == WordKind::event) continue;
    const Rank own = variant.plan.rank;
    uses.push_back({program, is_wait ? own.value : op.peer, static_cast<std::int32_t>(use.word),
                    is_wait                  ? WordUse::waits
                    : op.kind == OpKind::put ? WordUse::raises_by_puts
                                             : WordUse::raises,
                    own.value, static_cast<std::int32_t>(use.per_run), use.value});
  }
  std::sort(uses.begin(), uses.end());
  // Equal but for the value: the last is the highest.
  const auto same = [](const WordUse& a, const WordUse& b) {
    return std::tie(a.owner, a.word, a.kind, a.per_run) == std::tie(b.owner, b.word, b.kind, b.per_run);
  };
  std::vector<WordUse> highest;
  for (const WordUse& use : uses) {
    if (!highest.empty() && same(highest.back(), use)) {
      highest.back() = use;
    } else {
      highest.push_back(use);
    }
  }
  return highest;
}

// What is wrong with the uses of all ranks, for people to read; empty where nothing is. `label(program)` is the same on
// every rank.
template <class Label>
[[nodiscard]] std::string disagreement(std::vector<WordUse> uses, SignalWords words, const Label& label) {
  std::sort(uses.begin(), uses.end());
  const auto says = [&](const WordUse& use) {
    const std::string_view verbs[] = {" puts and raises ", " raises ", " waits for "};
    return text({"rank ", use.rank, verbs[use.kind], words.describe(use.word),
                 use.kind == WordUse::waits ? std::string() : text({" of rank ", use.owner}), " up to ", use.highest,
                 ", ", use.per_run, " in a run"});
  };
  const auto refusal = [&](const WordUse& use, const std::string& other) {
    return text({"tide::PlanVariant: ranks must tell each other what they wait for; in ", label(use.program), " ",
                 says(use), ", and ", other, "."});
  };
  for (std::size_t first = 0, last = 0; first < uses.size(); first = last) {
    while (last < uses.size() && std::tie(uses[last].program, uses[last].owner, uses[last].word) ==
                                     std::tie(uses[first].program, uses[first].owner, uses[first].word)) {
      ++last;
    }
    // Who waits comes last.
    const std::span<const WordUse> word(uses.data() + first, last - first);
    const WordUse& told = word.front();
    const WordUse& wait = word.back();
    if (wait.kind != WordUse::waits) {
      // A signal that nobody needs does no harm; bytes that land whenever they like do.
      if (told.kind == WordUse::raises_by_puts) {
        return refusal(told, text({"rank ", told.owner, " does not wait for it"}));
      }
      continue;
    }
    if (told.kind == WordUse::waits) return refusal(wait, "no rank raises it");
    std::int64_t highest = told.highest;
    for (const WordUse& use : word) {
      if (use.per_run != wait.per_run) return refusal(wait, says(use));
      if (use.kind != WordUse::waits) highest = std::max(highest, use.highest);
    }
    if (wait.highest > highest) return refusal(wait, says(told));
  }
  return {};
}

}  // namespace tide::detail
