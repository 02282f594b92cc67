// SPDX-License-Identifier: Apache-2.0
//
// Ranks as threads of one program.

#pragma once

#include <tide/core/config.hpp>  // TIDE_HAS_EXCEPTIONS
#include <tide/core/error.hpp>   // Error
#include <tide/core/text.hpp>    // text

#include <atomic>
#include <cstddef>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace tide::detail {

// Runs `body(i)` for i in [0, count), each on a thread of its own, waits for all, and throws again what was thrown
// first; each throw is told to `threw(i, what)` at once, so that no other waits for that thread. A thread that cannot
// be started counts as one that threw, and is the last. `started(n)` is called when no more of them are started.
// @param name  (i -> text) of a rank, "rank 5"
template <class Body, class Name, class Threw, class Started>
void run_threads(std::size_t count, const Body& body, const Name& name, const Threw& threw, const Started& started) {
  struct First {
    std::atomic_flag taken{};
    std::exception_ptr thrown{};  // written by who took the flag, read when all threads have ended
  } first;
  const auto guarded = [&](std::size_t i) {
#if TIDE_HAS_EXCEPTIONS
    const auto caught = [&](const char* what) {
      if (!first.taken.test_and_set()) first.thrown = std::current_exception();
      threw(i, what);
    };
    try {
      body(i);
    } catch (const std::exception& error) {
      caught(error.what());
    } catch (...) {
      caught("something that is no std::exception.");
    }
#else
    static_cast<void>(threw);
    static_cast<void>(name);
    body(i);
#endif
  };
  std::vector<std::thread> threads;
  threads.reserve(count);
  const auto start = [&](std::size_t i) {
#if TIDE_HAS_EXCEPTIONS
    try {
      threads.emplace_back(guarded, i);
    } catch (const std::system_error& error) {
      const std::string words =
          text({"tide::Fabric: the thread of a rank could not be started; ", name(i), ": ", error.what(), "."});
      if (!first.taken.test_and_set()) first.thrown = std::make_exception_ptr(Error(Errc::capacity, words));
      threw(i, words.c_str());
      return false;
    }
#else
    threads.emplace_back(guarded, i);
#endif
    return true;
  };
  std::size_t running = 0;
  while (running < count && start(running)) ++running;
  started(running);
  for (std::thread& thread : threads) thread.join();
#if TIDE_HAS_EXCEPTIONS
  if (first.thrown) std::rethrow_exception(first.thrown);
#endif
}

}  // namespace tide::detail
