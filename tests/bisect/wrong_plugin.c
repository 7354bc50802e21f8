/* A PJRT plugin that aborts: a real one, named by REAL, behind one function that is exchanged.
 *
 * AT is the function of PJRT_Api that aborts, by its number (PJRT_Client_Create is 10,
 * PJRT_Client_Compile 20, PJRT_LoadedExecutable_Execute 55). WORD is a text of the module without
 * which it does not; "" is any.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef void *function(void *);
struct api { size_t size; void *more; size_t version[3]; function *functions[]; };
struct program { size_t size; void *more; char *code; size_t length; };
struct compiled { size_t size; void *more; void *client; struct program *program; };

enum { COMPILE = 20 };
static function *compile, *right;
static int has_word; /* whether the module that was compiled last has it */

static void *wrong_compile(void *arguments) {
  struct program *program = ((struct compiled *)arguments)->program;
  has_word = memmem(program->code, program->length, WORD, strlen(WORD)) != NULL;
  if (has_word && AT == COMPILE) abort();
  return compile(arguments);
}

static void *wrong(void *arguments) {
  if (!*WORD || has_word) abort();
  return right(arguments);
}

void *GetPjrtApi(void) {
  void *library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
  struct api *real = ((struct api * (*)(void))dlsym(library, "GetPjrtApi"))();
  struct api *own = malloc(real->size);
  memcpy(own, real, real->size);
  compile = own->functions[COMPILE];
  right = own->functions[AT];
  own->functions[AT] = wrong;
  own->functions[COMPILE] = wrong_compile;
  return own;
}
