#include "engine/gguf/tensor_type.h"

#include <cassert>

namespace lm {
namespace {

struct GgmlType {
  uint32_t number;
  absl::string_view name;
  std::optional<DType> dtype;
};

constexpr GgmlType kTypes[] = {
    {0, "F32", DType::kF32},          {1, "F16", DType::kF16},
    {2, "Q4_0", DType::kQ4_0},        {3, "Q4_1", DType::kQ4_1},
    {4, "Q4_2", std::nullopt},        {5, "Q4_3", std::nullopt},
    {6, "Q5_0", DType::kQ5_0},        {7, "Q5_1", DType::kQ5_1},
    {8, "Q8_0", DType::kQ8_0},        {9, "Q8_1", std::nullopt},
    {10, "Q2_K", DType::kQ2_K},       {11, "Q3_K", DType::kQ3_K},
    {12, "Q4_K", DType::kQ4_K},       {13, "Q5_K", DType::kQ5_K},
    {14, "Q6_K", DType::kQ6_K},       {15, "Q8_K", std::nullopt},
    {16, "IQ2_XXS", DType::kIQ2_XXS}, {17, "IQ2_XS", DType::kIQ2_XS},
    {18, "IQ3_XXS", DType::kIQ3_XXS}, {19, "IQ1_S", DType::kIQ1_S},
    {20, "IQ4_NL", DType::kIQ4_NL},   {21, "IQ3_S", DType::kIQ3_S},
    {22, "IQ2_S", DType::kIQ2_S},     {23, "IQ4_XS", DType::kIQ4_XS},
    {24, "I8", std::nullopt},         {25, "I16", std::nullopt},
    {26, "I32", DType::kI32},         {27, "I64", std::nullopt},
    {28, "F64", std::nullopt},        {29, "IQ1_M", DType::kIQ1_M},
    {30, "BF16", DType::kBF16},       {31, "Q4_0_4_4", std::nullopt},
    {32, "Q4_0_4_8", std::nullopt},   {33, "Q4_0_8_8", std::nullopt},
    {34, "TQ1_0", DType::kTQ1_0},     {35, "TQ2_0", DType::kTQ2_0},
    {39, "MXFP4", DType::kMXFP4},     {40, "NVFP4", DType::kNVFP4},
    {41, "Q1_0", DType::kQ1_0},       {42, "Q2_0", DType::kQ2_0},
};

const GgmlType* FindType(uint32_t number) {
  for (const GgmlType& type : kTypes) {
    if (type.number == number) return &type;
  }
  return nullptr;
}

}  // namespace

std::optional<DType> DTypeOfGgml(uint32_t number) {
  const GgmlType* type = FindType(number);
  return type == nullptr ? std::nullopt : type->dtype;
}

uint32_t GgmlNumber(DType dtype) {
  for (const GgmlType& type : kTypes) {
    if (type.dtype == dtype) return type.number;
  }
  assert(false);
  return 0;
}

absl::string_view GgmlTypeName(uint32_t number) {
  const GgmlType* type = FindType(number);
  return type == nullptr ? "unknown" : type->name;
}

}  // namespace lm
