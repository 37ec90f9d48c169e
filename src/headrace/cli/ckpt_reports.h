// How `headrace ckpt` prints longer reports, as text or JSON. One thread.
#pragma once

#include "headrace/checkpoint/advice.h"
#include "headrace/checkpoint/diff.h"
#include "headrace/checkpoint/import.h"
#include "headrace/cli/commands.h"

namespace headrace::cli {

void PrintDiff(const checkpoint::DiffReport& report, const checkpoint::CatalogEntry& a,
               const checkpoint::CatalogEntry& b, Session* session);
void PrintImport(const checkpoint::ImportReport& report, Session* session);
void PrintAdvice(const checkpoint::SaveAdvice& advice, Session* session);

}  // namespace headrace::cli
