#include "kernels/processor.h"

namespace bascule::kernels {

const Processor* avx2_processor() { return nullptr; }

}  // namespace bascule::kernels
