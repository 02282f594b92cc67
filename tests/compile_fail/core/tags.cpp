#include <tide/core/tags.hpp>

#if TIDE_CASE == 1  // expect: tide::Bytes: a size in bytes must be positive
auto subject = tide::Bytes<0>::value;
#elif TIDE_CASE == 2   // expect: tide::Chunks: the number of chunks must be 1 to 255
auto subject = tide::Chunks<0>::value;
#elif TIDE_CASE == 3   // expect: tide::Chunks: the number of chunks must be 1 to 255
auto subject = tide::Chunks<256>::value;
#elif TIDE_CASE == 4   // expect: tide::Depth: the number of slots must be 1 to 255
auto subject = tide::Depth<0>::value;
#elif TIDE_CASE == 5   // expect: tide::Depth: the number of slots must be 1 to 255
auto subject = tide::Depth<256>::value;
#elif TIDE_CASE == 6   // expect: tide::Ctas: the number of CTAs must be positive
auto subject = tide::Ctas<-1>::value;
#elif TIDE_CASE == 7   // expect: tide::Prefetch: the number of groups gathered ahead must be 0 to 254
auto subject = tide::Prefetch<-1>::value;
#elif TIDE_CASE == 8   // expect: tide::Repeat: the number of groups must be positive
auto subject = tide::Repeat<0>::value;
#elif TIDE_CASE == 9   // expect: tide::Buffers: the number of gradient memories must be 0 to 255
auto subject = tide::Buffers<256>::value;
#elif TIDE_CASE == 10  // expect: tide::PutsInFlight: the number of puts in flight must be 2 to 65535
auto subject = tide::PutsInFlight<1>::value;
#else                  // control: the same with legal arguments
auto subject = tide::Bytes<1>::value + tide::Chunks<1>::value + tide::Chunks<255>::value + tide::Depth<1>::value +
               tide::Depth<255>::value + tide::Ctas<1>::value + tide::Prefetch<0>::value + tide::Repeat<1>::value +
               tide::Buffers<0>::value + tide::PutsInFlight<2>::value;
#endif
