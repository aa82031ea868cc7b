/* SPDX-License-Identifier: MIT
 *
 * The list of kernel tables and the choice among them: by CPU, by option, by $MHA_ISA.
 */
#ifndef MHA_DISPATCH_H
#define MHA_DISPATCH_H

#include "kernels.h"

/* The table for an ISA on a CPU with these features (enum mha_cpu_feature); NULL if this
 * build or that CPU doesn't have it. MHA_ISA_AUTO: the best there is, never NULL. */
const struct mha_kernels *mha_dispatch(mha_isa isa, unsigned features);

/* The i-th of the tables that a CPU with these features can run, best first; NULL past the
 * last. For tests and benches, which walk them all. */
const struct mha_kernels *mha_dispatch_table(size_t i, unsigned features);

/* The table to use on this machine. AUTO: $MHA_ISA if set and not empty, else the best.
 * An ISA that can't be had is MHA_ERROR_UNSUPPORTED with the list of those that can. */
mha_status mha_dispatch_select(mha_isa isa, const struct mha_kernels **kernels);

#endif
