// SPDX-License-Identifier: Apache-2.0
//
// with_type: from an element known at run time to code that knows its type.

#pragma once

#include <tide/element/convert.hpp>

namespace tide_example {

/// Calls `f.template operator()<T>()` for the type T that stores `element`.
template <class F>
decltype(auto) with_type(tide::Element element, F&& f) {
  using tide::Element;
  switch (element) {
    case Element::f16:
      return f.template operator()<tide::f16>();
    case Element::f32:
      return f.template operator()<float>();
    case Element::f64:
      return f.template operator()<double>();
    case Element::f8_e4m3:
      return f.template operator()<tide::f8_e4m3>();
    case Element::f8_e5m2:
      return f.template operator()<tide::f8_e5m2>();
    case Element::bf16:
      break;
  }
  return f.template operator()<tide::bf16>();
}

}  // namespace tide_example
