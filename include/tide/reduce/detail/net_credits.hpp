// SPDX-License-Identifier: Apache-2.0
//
// How a node learns that another has taken what it put, so that it may put to the same place again.
//
//   by what comes back    the other puts, too, and does so only when it has added what had come before: no signal
//   by a credit           where nothing has come back in time: the first puts of a run, and nodes that do not answer
//
// Both nodes work through chunks by one schedule, so each knows what the other knows.

#pragma once

#include <tide/reduce/detail/credits.hpp>  // Credits

#include <algorithm>
#include <utility>
#include <vector>

namespace tide::detail {

// When, in the issue order, the puts of a chunk are made in a round, and when what they brought is added.
struct RoundSteps {
  index_t put = 0;    // steps behind the chunk
  index_t added = 0;  // the same

  // Whether what came for chunk `added_chunk` is added before the puts for chunk `put_chunk`.
  [[nodiscard]] constexpr bool before(index_t added_chunk, index_t put_chunk) const noexcept {
    return std::pair(added_chunk + added, added_chunk) < std::pair(put_chunk + put, put_chunk);
  }
};

class NetCredits {
 public:
  // Before its own puts for chunk `put`, the receiver has to have added chunk `added`.
  struct Answer {
    index_t put = 0;
    index_t added = 0;
    bool of_last_run = false;  // of the run before that of the puts
  };

  constexpr NetCredits() = default;
  // Of a sender of chunks `sends`, to whom the receiver puts chunks `gets` in the same round.
  constexpr NetCredits(const std::vector<index_t>& sends, const std::vector<index_t>& gets, index_t places,
                       RoundSteps steps)
      : before_(sends.size(), Credits::none), wanted_(sends.size(), 0) {
    const auto count = static_cast<index_t>(sends.size());
    index_t known = Credits::none;  // the latest chunk that the sender knows to be added: its number in `sends`, plus 1
    for (index_t i = 0; i < count; ++i) {
      const index_t value = needed(sends, i, places);
      if (value <= known) continue;
      known = value;
      const bool last_run = value <= 0;
      const auto of = static_cast<std::size_t>(last_run ? value - 1 + count : value - 1);
      const index_t put = answer_before(gets, sends[static_cast<std::size_t>(i)], steps);
      if (put >= 0 && (last_run || steps.before(sends[of], put))) {
        answers_.push_back({put, sends[of], last_run});
      } else if (put < 0 && last_run && !gets.empty() && steps.before(sends[of], gets.back())) {
        answers_.push_back({gets.back(), sends[of], false});  // it came back in the last run
      } else {
        before_[static_cast<std::size_t>(i)] = value;
        wanted_[of] = 1;
      }
    }
  }

  // The credit that the i-th put waits for.
  [[nodiscard]] constexpr index_t before(index_t i) const noexcept { return before_[static_cast<std::size_t>(i)]; }
  // Whether the receiver has to tell that it has added what the i-th brought.
  [[nodiscard]] constexpr bool wanted(index_t i) const noexcept { return wanted_[static_cast<std::size_t>(i)] != 0; }
  [[nodiscard]] constexpr const std::vector<Answer>& answers() const noexcept { return answers_; }

 private:
  // The chunk before the i-th in its place: its number plus 1; of the last run, less by their count.
  [[nodiscard]] static constexpr index_t needed(const std::vector<index_t>& sends, index_t i, index_t places) {
    const auto count = static_cast<index_t>(sends.size());
    for (index_t back = 1; back <= count; ++back) {
      const index_t j = i - back;
      const auto at = static_cast<std::size_t>(j >= 0 ? j : j + count);
      if (sends[at] % places == sends[static_cast<std::size_t>(i)] % places) return j + 1;
    }
    return Credits::none;
  }

  // The last chunk that has come back before the puts for chunk `c`; -1 where none has.
  [[nodiscard]] static constexpr index_t answer_before(const std::vector<index_t>& gets, index_t c, RoundSteps steps) {
    index_t last = -1;
    for (const index_t chunk : gets) {
      if (steps.before(chunk, c)) last = std::max(last, chunk);
    }
    return last;
  }

  std::vector<index_t> before_;
  std::vector<char> wanted_;
  std::vector<Answer> answers_;
};

}  // namespace tide::detail
