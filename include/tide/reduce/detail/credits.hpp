// SPDX-License-Identifier: Apache-2.0
//
// Which credits a sender waits for before it writes to a place again, and so which ones the reader has to give: those
// that nothing earlier covers, in this run or from the last one.

#pragma once

#include <tide/core/math.hpp>  // index_t

#include <cstdint>
#include <vector>

namespace tide::detail {

class Credits {
 public:
  static constexpr index_t none = INT64_MIN;

  constexpr Credits() = default;
  // Of `chunks` chunks that take turns in `places` places.
  constexpr Credits(index_t chunks, index_t places) : Credits(turns(chunks, places)) {}
  // Of chunks in the given places, in the order in which they are sent and read.
  constexpr explicit Credits(const std::vector<index_t>& places)
      : before_(places.size(), none), wanted_(places.size(), 0) {
    const auto chunks = static_cast<index_t>(places.size());
    index_t waited = none;
    std::vector<index_t> last =
        last_in(places);  // of each place, the value of its latest credit, counted from this run
    for (index_t c = 0; c < chunks; ++c) {
      index_t& latest = last[static_cast<std::size_t>(places[static_cast<std::size_t>(c)])];
      const index_t value = latest;
      latest = c + 1;
      if (value <= waited) continue;
      before_[static_cast<std::size_t>(c)] = waited = value;
      wanted_[static_cast<std::size_t>(value > 0 ? value - 1 : value - 1 + chunks)] = 1;
    }
  }

  // The credit that sending `chunk` waits for; `none` where an earlier wait covers it.
  [[nodiscard]] constexpr index_t before(index_t chunk) const noexcept {
    return before_[static_cast<std::size_t>(chunk)];
  }

  // Whether the reader has to tell that it has read `chunk`.
  [[nodiscard]] constexpr bool wanted(index_t chunk) const noexcept {
    return wanted_[static_cast<std::size_t>(chunk)] != 0;
  }

 private:
  [[nodiscard]] static constexpr std::vector<index_t> turns(index_t chunks, index_t places) {
    std::vector<index_t> all;
    for (index_t c = 0; c < chunks; ++c) all.push_back(c % places);
    return all;
  }

  // The credits of the last run. The value of a credit is chunk + 1; of the last run, counted from this one, less by
  // the number of chunks.
  [[nodiscard]] static constexpr std::vector<index_t> last_in(const std::vector<index_t>& places) {
    std::vector<index_t> last;
    for (std::size_t c = 0; c < places.size(); ++c) {
      const auto place = static_cast<std::size_t>(places[c]);
      if (last.size() <= place) last.resize(place + 1, none);
      last[place] = static_cast<index_t>(c + 1) - static_cast<index_t>(places.size());
    }
    return last;
  }

  std::vector<index_t> before_;
  std::vector<char> wanted_;
};

}  // namespace tide::detail
