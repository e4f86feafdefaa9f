#pragma once
#include "../c_api/asc_simd.h"
