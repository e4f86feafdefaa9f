// Vector registers and masks from and to UB.
#pragma once
#include "simd_registers.h"

// UB to a register, `off` elements from s. asc_loadalign: 256 bytes at a multiple of 32. Forms in `_postupdate` read at
// s and add off to it afterwards.
template <class T>
ASC_API void asc_loadalign(ascsim::vreg<T>& d, T* s, int64_t off) {
  ascsim::check_ub(s + off, 256, 32, "asc_loadalign");
  std::memcpy(d.v, s + off, 256);
}
template <class T>
ASC_API void asc_loadalign_postupdate(ascsim::vreg<T>& d, T*& s, int32_t off) {
  asc_loadalign(d, s, 0);
  s += off;
}
// asc_loadalign_brc_elem: one element in every lane; asc_loadalign_brc_datablock: one 32-byte block in every block;
// asc_loadalign_brc_elem2datablock: eight elements, one for each block.
template <class T>
ASC_API void asc_loadalign_brc_elem(ascsim::vreg<T>& d, T* s, int64_t off) {
  ascsim::check_ub(s + off, sizeof(T), sizeof(T), "asc_loadalign_brc_elem");
  T x = s[off];
  for (auto& v : d.v) v = x;
}
template <class T>
ASC_API void asc_loadalign_brc_elem_postupdate(ascsim::vreg<T>& d, T*& s, int32_t off) {
  asc_loadalign_brc_elem(d, s, 0);
  s += off;
}
template <class T>
ASC_API void asc_loadalign_brc_datablock(ascsim::vreg<T>& d, T* s, int64_t off) {
  ascsim::check_ub(s + off, 32, 32, "asc_loadalign_brc_datablock");
  constexpr int W = 32 / sizeof(T);
  for (int i = 0; i < ascsim::vreg<T>::N; i++) d.v[i] = s[off + i % W];
}
template <class T>
ASC_API void asc_loadalign_brc_datablock_postupdate(ascsim::vreg<T>& d, T*& s, int32_t off) {
  asc_loadalign_brc_datablock(d, s, 0);
  s += off;
}
template <class T>
ASC_API void asc_loadalign_brc_elem2datablock(ascsim::vreg<T>& d, T* s, int64_t off) {
  constexpr int W = 32 / sizeof(T);
  ascsim::check_ub(s + off, 8 * sizeof(T), sizeof(T), "asc_loadalign_brc_elem2datablock");
  for (int i = 0; i < ascsim::vreg<T>::N; i++) d.v[i] = s[off + i / W];
}
template <class T>
ASC_API void asc_loadalign_brc_elem2datablock_postupdate(ascsim::vreg<T>& d, T*& s, int32_t off) {
  asc_loadalign_brc_elem2datablock(d, s, 0);
  s += off;
}
// asc_loadalign_upsample: each element twice; asc_loadalign_downsample: every second element; asc_loadalign_unpack and
// asc_loadalign_unpack4: elements in every second or fourth lane with zeros between.
template <class T>
ASC_API void asc_loadalign_upsample(ascsim::vreg<T>& d, T* s, int64_t off) {
  ascsim::check_ub(s + off, 128, 32, "asc_loadalign_upsample");
  for (int i = 0; i < ascsim::vreg<T>::N; i++) d.v[i] = s[off + i / 2];
}
template <class T>
ASC_API void asc_loadalign_upsample_postupdate(ascsim::vreg<T>& d, T*& s, int32_t off) {
  asc_loadalign_upsample(d, s, 0);
  s += off;
}
template <class T>
ASC_API void asc_loadalign_downsample(ascsim::vreg<T>& d, T* s, int64_t off) {
  ascsim::check_ub(s + off, 512, 32, "asc_loadalign_downsample");
  for (int i = 0; i < ascsim::vreg<T>::N; i++) d.v[i] = s[off + i * 2];
}
template <class T>
ASC_API void asc_loadalign_downsample_postupdate(ascsim::vreg<T>& d, T*& s, int32_t off) {
  asc_loadalign_downsample(d, s, 0);
  s += off;
}
template <class T>
ASC_API void asc_loadalign_unpack(ascsim::vreg<T>& d, T* s, int64_t off) {
  ascsim::check_ub(s + off, 128, 32, "asc_loadalign_unpack");
  ascsim::vreg<T> r;
  std::memset(&r, 0, 256);
  for (int i = 0; i < ascsim::vreg<T>::N / 2; i++) r.v[2 * i] = s[off + i];
  d = r;
}
template <class T>
ASC_API void asc_loadalign_unpack_postupdate(ascsim::vreg<T>& d, T*& s, int32_t off) {
  asc_loadalign_unpack(d, s, 0);
  s += off;
}
template <class T>
ASC_API void asc_loadalign_unpack4(ascsim::vreg<T>& d, T* s, int64_t off) {
  ascsim::check_ub(s + off, 64, 32, "asc_loadalign_unpack4");
  ascsim::vreg<T> r;
  std::memset(&r, 0, 256);
  for (int i = 0; i < ascsim::vreg<T>::N / 4; i++) r.v[4 * i] = s[off + i];
  d = r;
}
template <class T>
ASC_API void asc_loadalign_unpack4_postupdate(ascsim::vreg<T>& d, T*& s, int32_t off) {
  asc_loadalign_unpack4(d, s, 0);
  s += off;
}
// asc_loadalign_deintlv: 512 bytes, elements dealt to two registers in turn.
template <class T>
ASC_API void asc_loadalign_deintlv(ascsim::vreg<T>& a, ascsim::vreg<T>& b, T* s, int64_t off = 0) {
  ascsim::check_ub(s + off, 512, 32, "asc_loadalign_deintlv");
  for (int i = 0; i < ascsim::vreg<T>::N; i++) {
    a.v[i] = s[off + 2 * i];
    b.v[i] = s[off + 2 * i + 1];
  }
}
// asc_storealign: active lanes of a register to UB, at a multiple of 32 bytes. asc_storealign_1st: the first lane only,
// at a multiple of its size. asc_storealign_pack, asc_storealign_pack_quarter: the lower half or quarter of each lane,
// packed.
template <class T>
ASC_API void asc_storealign(T* d, const ascsim::vreg<T>& a, int64_t off, const vector_bool& m) {
  ascsim::check_ub(d + off, sizeof(T), 32, "asc_storealign");
  ascsim::tally<T>(m);
  for (int i = 0; i < ascsim::vreg<T>::N; i++)
    if (ascsim::act<T>(m, i)) {
      ascsim::check_ub(d + off + i, sizeof(T), 1, "asc_storealign");
      d[off + i] = a.v[i];
    }
}
template <class T>
ASC_API void asc_storealign_1st(T* d, const ascsim::vreg<T>& a, int64_t off) {
  ascsim::check_ub(d + off, sizeof(T), sizeof(T), "asc_storealign_1st");
  d[off] = a.v[0];
}
template <class T>
ASC_API void asc_storealign_pack(T* d, const ascsim::vreg<T>& a, int64_t off, const vector_bool& m) {
  uint8_t* p = (uint8_t*)(d + off);
  constexpr int H = sizeof(T) / 2;
  ascsim::tally<T>(m);
  for (int i = 0; i < ascsim::vreg<T>::N; i++)
    if (ascsim::act<T>(m, i)) {
      ascsim::check_ub(p + i * H, H, 1, "asc_storealign_pack");
      std::memcpy(p + i * H, &a.v[i], H);
    }
}
template <class T>
ASC_API void asc_storealign_pack_quarter(T* d, const ascsim::vreg<T>& a, int64_t off, const vector_bool& m) {
  uint8_t* p = (uint8_t*)(d + off);
  ascsim::tally<T>(m);
  for (int i = 0; i < ascsim::vreg<T>::N; i++)
    if (ascsim::act<T>(m, i)) {
      ascsim::check_ub(p + i, 1, 1, "asc_storealign_pack");
      std::memcpy(p + i, &a.v[i], 1);
    }
}
// asc_storealign with strides, block by block: 32-byte block g to base + g * blk blocks. asc_storealign_postupdate then
// adds rep blocks to base; its form with an offset stores at base and adds off elements.
template <class T>
ASC_API void ascsim_store_blocks(T* base, const ascsim::vreg<T>& a, uint16_t blk, const vector_bool& m) {
  constexpr int W = 32 / sizeof(T);
  ascsim::tally<T>(m);
  for (int i = 0; i < ascsim::vreg<T>::N; i++)
    if (ascsim::act<T>(m, i)) {
      T* p = (T*)((uint8_t*)base + size_t(i / W) * blk * 32) + i % W;
      ascsim::check_ub(p, sizeof(T), 1, "asc_storealign, strided");
      *p = a.v[i];
    }
}
template <class T>
ASC_API void asc_storealign(T* base, const ascsim::vreg<T>& a, uint16_t blk, uint16_t, const vector_bool& m) {
  ascsim_store_blocks(base, a, blk, m);
}
template <class T>
ASC_API void asc_storealign_postupdate(T*& base, const ascsim::vreg<T>& a, uint16_t blk, uint16_t rep,
                                       const vector_bool& m) {
  ascsim_store_blocks(base, a, blk, m);
  base = (T*)((uint8_t*)base + size_t(rep) * 32);
}
template <class T>
ASC_API void asc_storealign_postupdate(T*& base, const ascsim::vreg<T>& a, int32_t off, const vector_bool& m) {
  asc_storealign(base, a, 0, m);
  base += off;
}
// asc_loadalign and asc_storealign of masks, one bit per byte of a register; off in bytes; the forms in `_upsample`,
// `_downsample` and `_pack` with each bit twice, or every second.
ASC_API void asc_loadalign(vector_bool& d, uint32_t* s, int32_t off) {
  ascsim::check_ub((uint8_t*)s + off, 32, 32, "mask in UB");
  for (int i = 0; i < 256; i++) d.b[i] = (((uint8_t*)s)[off + i / 8] >> (i % 8)) & 1;
}
ASC_API void asc_loadalign_upsample(vector_bool& d, uint32_t* s, int32_t off) {
  ascsim::check_ub((uint8_t*)s + off, 16, 16, "mask in UB");
  for (int i = 0; i < 256; i++) d.b[i] = (((uint8_t*)s)[off + i / 16] >> ((i / 2) % 8)) & 1;
}
ASC_API void asc_loadalign_downsample(vector_bool& d, uint32_t* s, int32_t off) {
  ascsim::check_ub((uint8_t*)s + off, 64, 32, "mask in UB");
  for (int i = 0; i < 256; i++) d.b[i] = (((uint8_t*)s)[off + i / 4] >> ((2 * i) % 8)) & 1;
}
ASC_API void asc_storealign(uint32_t* s, vector_bool a, int32_t off) {
  ascsim::check_ub((uint8_t*)s + off, 32, 32, "mask in UB");
  uint8_t* p = (uint8_t*)s + off;
  std::memset(p, 0, 32);
  for (int i = 0; i < 256; i++) p[i / 8] |= a.b[i] << (i % 8);
}
ASC_API void asc_storealign_pack(uint32_t* s, vector_bool a, int32_t off) {
  ascsim::check_ub((uint8_t*)s + off, 16, 16, "mask in UB");
  uint8_t* p = (uint8_t*)s + off;
  std::memset(p, 0, 16);
  for (int i = 0; i < 128; i++) p[i / 8] |= a.b[2 * i] << (i % 8);
}
// asc_gather: elements by index from UB, or from a register; asc_scatter: active lanes to UB by index;
// asc_gather_datablock: 32-byte blocks of UB by byte offset.
template <class T, class I>
ASC_API void asc_gather(ascsim::vreg<T>& d, T* base, const ascsim::vreg<I>& ix, const vector_bool& m) {
  for (int i = 0; i < ascsim::vreg<T>::N && i < ascsim::vreg<I>::N; i++) {
    if (ascsim::act<T>(m, i)) {
      ascsim::check_ub(base + ix.v[i], sizeof(T), 1, "asc_gather");
      d.v[i] = base[ix.v[i]];
    } else d.v[i] = T(0);
  }
}
template <class T, class I>
ASC_API void asc_gather(ascsim::vreg<T>& d, const ascsim::vreg<T>& a, const ascsim::vreg<I>& ix) {
  ascsim::vreg<T> r;
  for (int i = 0; i < ascsim::vreg<T>::N; i++) r.v[i] = a.v[ix.v[i] % ascsim::vreg<T>::N];
  d = r;
}
template <class T, class I>
ASC_API void asc_scatter(T* base, const ascsim::vreg<T>& a, const ascsim::vreg<I>& ix, const vector_bool& m) {
  ascsim::tally<T>(m);
  for (int i = 0; i < ascsim::vreg<T>::N && i < ascsim::vreg<I>::N; i++)
    if (ascsim::act<T>(m, i)) {
      ascsim::check_ub(base + ix.v[i], sizeof(T), 1, "asc_scatter");
      base[ix.v[i]] = a.v[i];
    }
}
template <class T>
ASC_API void asc_gather_datablock(ascsim::vreg<T>& d, T* base, const vector_u32& ix) {
  for (int g = 0; g < 8; g++) {
    uint8_t* p = (uint8_t*)base + ix.v[g];
    ascsim::check_ub(p, 32, 32, "asc_gather_datablock");
    std::memcpy((uint8_t*)d.v + g * 32, p, 32);
  }
}
template <class T>
ASC_API void asc_gather_datablock(ascsim::vreg<T>& d, T* base, const vector_u32& ix, const vector_bool&) {
  asc_gather_datablock(d, base, ix);
}
