#include <tide/layout/packing.hpp>

#if TIDE_CASE == 1  // expect: tide::DenseStorage: the alignment must be a power of two from 16 bytes to 1 GiB
auto subject = tide::DenseStorage<tide::Bytes<8>>::alignment;
#elif TIDE_CASE == 2  // expect: tide::DenseStorage: the alignment must be a power of two from 16 bytes to 1 GiB
auto subject = tide::DenseStorage<tide::Bytes<96>>::alignment;
#elif TIDE_CASE == 3  // expect: tide::DenseStorage: the alignment must be a power of two from 16 bytes to 1 GiB
auto subject = tide::DenseStorage<tide::Bytes<(tide::index_t{1} << 31)>>::alignment;
#elif TIDE_CASE == 4  // expect: tide::DenseStorage: Alignment must be Bytes<N>
auto subject = tide::DenseStorage<tide::Depth<16>>::alignment;
#else                 // control: the same with legal arguments
auto subject = tide::DenseStorage<tide::Bytes<16>>::alignment +
               tide::DenseStorage<tide::Bytes<(tide::index_t{1} << 30)>>::alignment;
#endif
