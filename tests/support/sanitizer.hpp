// SPDX-License-Identifier: Apache-2.0
//
// How large a test may be: sanitizers take 5 to 20 times as long.

#pragma once

namespace tide_test {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#else
inline constexpr bool sanitized = false;
#endif

/// `full`, or the smaller number under a sanitizer.
[[nodiscard]] constexpr int sized(int full, int under_sanitizer) noexcept { return sanitized ? under_sanitizer : full; }

}  // namespace tide_test
