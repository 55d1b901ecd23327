/* The smallest honest command: what a spawn itself costs. Linked statically. */
int main(void) {
  return 0;
}
