// libjpeg's header, with what it needs before it. Used by the JPEG files of the codec and its
// tests.
#pragma once

// clang-format off
#include <cstddef>
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on
