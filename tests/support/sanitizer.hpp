// SPDX-License-Identifier: Apache-2.0
//
// How large a test may be: sanitizers take 5 to 20 times as long.

#pragma once

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define TIDE_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define TIDE_TEST_SANITIZED 1
#endif
#endif
#if !defined(TIDE_TEST_SANITIZED)
#define TIDE_TEST_SANITIZED 0
#endif

namespace tide_test {

inline constexpr bool sanitized = TIDE_TEST_SANITIZED != 0;

/// `full`, or the smaller number under a sanitizer.
[[nodiscard]] constexpr int sized(int full, int under_sanitizer) noexcept { return sanitized ? under_sanitizer : full; }

}  // namespace tide_test
