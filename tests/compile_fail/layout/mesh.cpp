#include <tide/layout/mesh.hpp>

#if TIDE_CASE == 1  // expect: tide::Mesh: Nodes must be positive
tide::Mesh<0, 8> subject;
#elif TIDE_CASE == 2  // expect: tide::Mesh: Nodes must be positive
tide::Mesh<-2, tide::dynamic> subject(1, 8);
#elif TIDE_CASE == 3  // expect: tide::Mesh: RanksPerNode must be positive
tide::Mesh<1, 0> subject;
#elif TIDE_CASE == 4  // expect: tide::Mesh: a mesh has at most 65535 ranks
tide::Mesh<256, 256> subject;
#else                 // control: the same declarations with legal arguments
tide::Mesh<1, 8> subject;
tide::Mesh<2, tide::dynamic> half_dynamic(2, 8);
tide::Mesh<255, 257> largest;
#endif
