// SPDX-License-Identifier: Apache-2.0
//
// The arenas of all ranks that are in one process.

#pragma once

#include <tide/core/index.hpp>  // Rank
#include <tide/core/math.hpp>   // ceil_div

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif
#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

namespace tide::detail {

struct AlignedDelete {
  void operator()(std::byte* memory) const noexcept { ::operator delete (memory, std::align_val_t{4096}); }
};
using AlignedMemory = std::unique_ptr<std::byte[], AlignedDelete>;

// Memory whose pages are not touched here, so that what is never used costs nothing. Null when there is none.
[[nodiscard]] inline AlignedMemory allocate_aligned(index_t bytes) {
  void* memory = ::operator new (static_cast<std::size_t>(bytes), std::align_val_t{4096}, std::nothrow);
#if __has_include(<sys/mman.h>) && defined(MADV_HUGEPAGE)
  // Large pages where the system has them to give: a first touch of 4 KiB pages takes about 0.3 s per GiB.
  if (memory != nullptr && bytes >= index_t{8} << 20) madvise(memory, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);
#endif
  return AlignedMemory(static_cast<std::byte*>(memory));
}

// Physical memory of the machine in bytes, or 0 where it cannot be asked.
[[nodiscard]] inline index_t machine_memory() noexcept {
#if __has_include(<unistd.h>) && defined(_SC_PHYS_PAGES)
  return static_cast<index_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<index_t>(sysconf(_SC_PAGE_SIZE));
#else
  return 0;
#endif
}

[[nodiscard]] inline std::string gibibytes(index_t bytes) {
  const index_t hundredths = ceil_div(bytes / (index_t{1} << 20) * 100, 1024);
  return std::to_string(hundredths / 100) + "." + std::to_string(hundredths % 100 + 100).substr(1) + " GiB";
}

// Addresses that nothing may be read from or written to, and that take no memory.
class Addresses {
 public:
  explicit Addresses(index_t bytes) : bytes_(static_cast<std::size_t>(std::max<index_t>(bytes, 1))) {
#if __has_include(<sys/mman.h>)
    void* mapped = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped != MAP_FAILED) first_ = static_cast<std::byte*>(mapped);
#else
    first_ = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
#endif
  }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  ~Addresses() {
#if __has_include(<sys/mman.h>)
    if (first_ != nullptr) munmap(first_, bytes_);
#endif
  }

  // Null where there are not so many.
  [[nodiscard]] std::byte* first() const noexcept { return first_; }

 private:
  std::size_t bytes_;
  std::byte* first_ = nullptr;
};

class Arenas {
 public:
  explicit Arenas(index_t ranks) : arenas_(static_cast<std::size_t>(ranks)) {}

  // Null before one of the two below.
  [[nodiscard]] std::byte* at(Rank rank) const noexcept {
    return addresses_ ? addresses_->first() : arenas_[static_cast<std::size_t>(rank.value)].get();
  }

  // Gives the ranks addresses, the same ones, and no memory. Where there are not so many, says so.
  [[nodiscard]] std::string pretend(index_t bytes) {
    addresses_.emplace(bytes);
    if (addresses_->first() != nullptr) return {};
    return "tide::Fabric: the arenas must fit into memory; needs addresses for " + gibibytes(bytes) + ".";
  }

  // Gives each rank an arena of so many bytes. Where they do not fit into `limit` bytes, or the machine's memory for 0,
  // says why.
  [[nodiscard]] std::string allocate(index_t bytes, index_t limit) {
    const auto ranks = static_cast<index_t>(arenas_.size());
    const index_t has = limit > 0 ? limit : machine_memory();
    const bool overflows = bytes > INT64_MAX / ranks;
    const index_t needed = overflows ? INT64_MAX : bytes * ranks;
    bool fits = !overflows && (has == 0 || needed <= has);
    for (AlignedMemory& arena : arenas_) {
      if (fits) arena = allocate_aligned(std::max<index_t>(bytes, 1));
      fits = fits && arena != nullptr;
    }
    if (fits) return {};
    return "tide::Fabric: the arenas must fit into memory; needs " + gibibytes(needed) + ", has " + gibibytes(has) +
           ".";
  }

 private:
  std::vector<AlignedMemory> arenas_;
  std::optional<Addresses> addresses_;
};

}  // namespace tide::detail
