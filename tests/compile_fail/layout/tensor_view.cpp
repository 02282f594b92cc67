#include <tide/layout/tensor_view.hpp>

#if TIDE_CASE == 1  // expect: tide::TensorView: give one index per dimension
float subject(tide::TensorView<float, 2, 3> view) { return view(1); }
#elif TIDE_CASE == 2  // expect: tide::TensorView: give one index per dimension
float subject(tide::TensorView<float, 2, 3> view) { return view(1, 2, 3); }
#elif TIDE_CASE == 3  // expect: tide::TensorView: give one index per dimension
float subject(tide::TensorView<float, 2, 3> view) { return view.at(1); }
#else                 // control: the same with legal arguments
float subject(tide::TensorView<float, 2, 3> view) { return view(1, 2) + view.at(1, 2); }
#endif
