// The sizes of a convolution.
#pragma once

// A convolution of M images of C channels each with F filters. Its windows are KH x KW, (SY, SX) apart,
// their taps (DY, DX) apart, after padding by TOP and LEFT.
template <int M_, int C_, int H_, int W_, int F_, int OH_, int OW_, int KH_, int KW_, int SY_, int SX_,
          int TOP_, int LEFT_, int DY_, int DX_, int GROUPS_>
struct Conv {
    static const int M = M_, C = C_, H = H_, W = W_, F = F_, OH = OH_, OW = OW_, KH = KH_, KW = KW_;
    static const int SY = SY_, SX = SX_, TOP = TOP_, LEFT = LEFT_, DY = DY_, DX = DX_;
    static const int GROUPS = GROUPS_, CG = C / GROUPS, FG = F / GROUPS, TAPS = KH * KW;
};
